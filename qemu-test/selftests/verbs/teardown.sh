#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# Device, interface, namespace, process and module go away under traffic: everything
# ends in bounded time, nothing stays behind, and the next start works.

here=$(cd "$(dirname "$0")" && pwd -P)
CASE_TIMEOUT=120
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

after_all() { pair_down; }

# Writes, reads and sends in both directions that nothing but the end of the world ends.
start_traffic() {
	local tool port=18600 ga gb
	pair_up
	ga=$(gid_of a 10.0.0.1) gb=$(gid_of b 10.0.0.2)
	# all servers first: a start is slow once the others keep the CPUs busy
	for tool in "${TOOLS[@]}"; do
		port=$((port + 1))
		b "$tool" -d fb -x "$gb" -p $port -s 65536 --run_infinitely -D 1 >"server.$tool" 2>&1 &
	done
	within 30 listening b 18603
	within 30 listening b 18602
	within 30 listening b 18601
	port=18600
	for tool in "${TOOLS[@]}"; do
		port=$((port + 1))
		a "$tool" -d fa -x "$ga" -p $port -s 65536 --run_infinitely -D 1 10.0.0.2 >"client.$tool" 2>&1 &
	done
	within 30 busy
}
TOOLS=(ib_write_bw ib_read_bw ib_send_bw)

# Packets have moved through all connections.
busy() {
	[ "$(rdma resource show qp link fa 2>/dev/null | grep -c 'state RTS')" -ge 3 ] &&
		[ "$(cat_in a /sys/class/net/va/statistics/tx_bytes)" -gt 3000000 ]
}
cat_in() { ip netns exec "$1" cat "$2"; }

running() { pgrep -x 'ib_(write|read|send)_bw' >/dev/null; }
ended() { ! running; }

# The programs end by themselves once their device is gone, or when asked to.
end_traffic() {
	pkill -x 'ib_(write|read|send)_bw' || true
	within 20 ended
}

nothing_left() {
	local kind
	for kind in qp cq mr pd; do
		if rdma resource show "$kind" 2>/dev/null | grep -v 'comm \[' | grep .; then
			fail "$kind objects are left"
		fi
	done
}

works() {
	pair_up
	between v4 ibv_rc_pingpong -c -n 50
}

test_link_del_under_traffic() {
	start_traffic
	timeout $((30 * FERROCE_SLOWER)) ip netns exec a rdma link del fa
	device_gone fa
	end_traffic
	works
}

test_R18_interface_down_and_up_under_traffic() {
	start_traffic
	a ip link set va down
	sleep 1
	a ip link set va up
	end_traffic
	a ip addr replace fd00::1/64 dev va nodad
	works
}

test_R19_address_removed_under_traffic() {
	start_traffic
	a ip addr del 10.0.0.1/24 dev va
	sleep 1
	a ip addr add 10.0.0.1/24 dev va
	end_traffic
	works
}

test_R39_interface_removed_under_traffic() {
	start_traffic
	timeout $((30 * FERROCE_SLOWER)) ip -n a link del va
	device_gone fa
	device_gone fb
	end_traffic
	works
}

test_R39_namespace_removed_under_traffic() {
	start_traffic
	ip netns del a
	# the namespace lives while a process is in it
	end_traffic
	within 30 device_gone fa
	within 30 device_gone fb
	works
}

test_R17_processes_killed_under_traffic() {
	for _ in 1 2; do
		start_traffic
		pkill -KILL -x 'ib_(write|read|send)_bw'
		within 20 ended
	done
	nothing_left
	works
}

test_R15_thirty_short_connections() {
	works
	for _ in {1..30}; do
		between v4 ibv_rc_pingpong -n 2 >/dev/null
	done
	nothing_left
}

test_rmmod_under_traffic() {
	if [ "$FERROCE_DRIVER" = rxe ]; then
		skip "rdma_rxe stays loaded while a program has its device open"
	fi
	start_traffic
	timeout $((30 * FERROCE_SLOWER)) rmmod "$MODULE"
	device_gone fa
	device_gone fb
	end_traffic
	works
}

test_rmmod_with_idle_devices() {
	works
	nothing_left
	timeout $((30 * FERROCE_SLOWER)) rmmod "$MODULE"
	device_gone fa
	works
	pair_down
}

ktap_main "$@"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --modules none
# What happens to an interface happens to its device: events, names, namespaces, addresses.

here=$(cd "$(dirname "$0")" && pwd -P)
CASE_TIMEOUT=120
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() { pair_up; }
after_all() { pair_down; }

ping_pong() { between v4 ibv_rc_pingpong -c -n 30 "$@" >/dev/null; }

# Waits for the asynchronous events of fa that are named, in this order.
start_listening() {
	a python3 - "$@" >events.log 2>&1 <<'END' &
import sys
from pyverbs.device import Context
context = Context(name="fa")
print("ready", flush=True)
for wanted in sys.argv[1:]:
    while True:
        event = context.get_async_event()
        event.ack()
        print(event.event_type, flush=True)
        if str(event.event_type) == wanted:
            break
print("done", flush=True)
END
	LISTENER=$!
	(within 40 grep -q ready events.log) || { cat events.log; return 1; }
}
heard() { within 10 grep -q done events.log; wait "$LISTENER"; }
# enum ibv_event_type
PORT_ACTIVE=9 PORT_ERR=10 GID_CHANGE=18

test_R18_the_link_goes_down_and_up_with_events() {
	start_listening $PORT_ERR $PORT_ACTIVE
	ip -n b link set vb down
	within 10 grep -qx $PORT_ERR events.log
	a rdma link show fa/1 | grep -q 'state DOWN'
	ip -n b link set vb up
	heard
	a rdma link show fa/1 | grep -q 'state ACTIVE'
	ip -n b addr replace fd00::2/64 dev vb nodad
	ip -n a addr replace fd00::1/64 dev va nodad
	ping_pong
}

test_R19_an_address_comes_and_goes_with_events() {
	start_listening $GID_CHANGE $GID_CHANGE
	ip -n a addr add 10.0.0.55/24 dev va
	within 10 gid_of a 10.0.0.55
	ip -n a addr del 10.0.0.55/24 dev va
	heard
	not gid_of a 10.0.0.55
}

test_a_renamed_interface_keeps_its_device() {
	ip -n a link set va name other
	a rdma link show fa/1 | grep -q 'netdev other'
	ping_pong
	ip -n a link set other name va
	a rdma link show fa/1 | grep -q 'netdev va'
}

test_a_new_Ethernet_address() {
	local old
	old=$(a cat /sys/class/net/va/address)
	ip -n a link set va address 02:00:00:00:77:77
	ping_pong
	ip -n a link set va address "$old"
	ip -n a addr replace fd00::1/64 dev va nodad
	ping_pong
}

test_a_smaller_MTU_with_a_connection_beyond_it() {
	ip -n a link set va mtu 1500
	ip -n b link set vb mtu 1500
	ping_pong -m 1024
	expect_failure 'RTR' between v4 ibv_rc_pingpong -n 2 -m 4096
	ip -n a link set va mtu "$PAIR_MTU"
	ip -n b link set vb mtu "$PAIR_MTU"
	within 10 gid_of a 10.0.0.1
	ping_pong -m 4096
}

test_R39_an_interface_that_moves_away_takes_its_device_along() {
	ip netns add c
	ip link add m1 netns a type veth peer name m2 netns b
	a rdma link add fm type "$FERROCE_DRIVER" netdev m1
	timeout 20 ip -n a link set m1 netns c
	within 20 device_gone fm
	# it can have a new one there
	ip -n c link set m1 up
	ip netns exec c rdma link add fm type "$FERROCE_DRIVER" netdev m1
	ip netns del c
	within 20 device_gone fm
}

test_R29_GID_0_without_an_address_behind_it() {
	ip link add n1 netns a type veth peer name n2 netns b
	ip -n a link set n1 up
	ip -n b link set n2 up
	a sysctl -qw net.ipv6.conf.n1.disable_ipv6=1
	a rdma link add fn type "$FERROCE_DRIVER" netdev n1
	# the default GID stands for a link-local address that the interface has not
	a timeout 20 ibv_rc_pingpong -d fn -g 0 -n 2 >server.log 2>&1 &
	within 15 listening a 18515
	not a timeout 20 ibv_rc_pingpong -d fn -g 0 -n 2 127.0.0.1
	wait || true
	device_in a fn
	a ip link del n1
	within 20 device_gone fn
}

test_R21_unprivileged_users_make_and_delete_interfaces() {
	# root of a user namespace of its own, who may do anything to his own interfaces
	own='setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Urn'
	# shellcheck disable=SC2086 # a command and its arguments
	$own bash -ec '
		for i in {1..20}; do
			ip link add d0 type dummy; ip link set d0 up; ip addr add 10.9.9.9/24 dev d0
			! rdma link add fx type '"$FERROCE_DRIVER"' netdev d0 2>/dev/null
			ip link del d0
		done'
	device_gone fx
	# his namespace ends while a device is on an interface that root gave him
	# shellcheck disable=SC2086 # as above
	$own sleep 60 &
	local user=$!
	within 10 in_user_namespace "$user"
	ip link add u1 netns a type veth peer name u2 netns b
	a rdma link add fu type "$FERROCE_DRIVER" netdev u1
	ip -n a link set u1 netns "$user"
	within 20 device_gone fu
	ip link set dev lo up
	kill "$user"
	wait "$user" || true
	ping_pong
}
in_user_namespace() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

test_routes_are_looked_up_with_the_ports_and_the_class() {
	ping_pong
	ip -n a rule add ipproto udp dport 4791 prohibit
	not ping_pong
	ip -n a rule del ipproto udp dport 4791 prohibit
	ip -n a rule add tos 0x48 prohibit
	ping_pong
	ip -n a rule del tos 0x48 prohibit
}

test_a_route_that_changes_under_a_connection() {
	ip -n a route add blackhole 10.0.0.2/32 metric 5
	not ping_pong
	ip -n a route del blackhole 10.0.0.2/32 metric 5
	ping_pong
}

ktap_main "$@"

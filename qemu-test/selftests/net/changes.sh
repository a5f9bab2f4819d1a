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

# The wire as wire_up makes it, whatever the case before has left.
whole() {
	local ns
	a ip link show va >/dev/null 2>&1 || ip -n a link set other name va
	for ns in a b; do
		ip -n $ns link set "v$ns" mtu "$PAIR_MTU" up
		ip -n $ns addr replace "fd00::$([ $ns = a ] && echo 1 || echo 2)/64" dev "v$ns" nodad
		ip -n $ns rule flush
		ip -n $ns rule add lookup main pref 32766
	done
	ip -n a route flush 10.0.0.2/32
	within 10 gid_of a 10.0.0.1 >/dev/null
	within 10 gid_of b 10.0.0.2 >/dev/null
}

ping_pong() { between v4 ibv_rc_pingpong -c -n 30 "$@" >/dev/null; }

# Writes the asynchronous events of fa into events.log.
start_listening() {
	a timeout $((60 * FERROCE_SLOWER)) stdbuf -oL ibv_asyncwatch -d fa >events.log 2>&1 &
	within 20 grep -q 'async event FD' events.log
}
heard() { within 15 grep -q "event_type IBV_EVENT_$1" events.log; }

test_R18_the_link_goes_down_and_up_with_events() {
	whole
	start_listening
	ip -n b link set vb down
	heard PORT_ERR
	a rdma link show fa/1 | grep -q 'state DOWN'
	ip -n b link set vb up
	heard PORT_ACTIVE
	a rdma link show fa/1 | grep -q 'state ACTIVE'
	ip -n b addr replace fd00::2/64 dev vb nodad
	ip -n a addr replace fd00::1/64 dev va nodad
	ping_pong
}

test_R19_an_address_comes_and_goes_with_events() {
	whole
	start_listening
	ip -n a addr add 10.0.0.55/24 dev va
	within 10 gid_of a 10.0.0.55
	heard GID_CHANGE
	ip -n a addr del 10.0.0.55/24 dev va
	within 10 no_gid 10.0.0.55
}

no_gid() { ! gid_of a "$1"; }

test_a_renamed_interface_keeps_its_device() {
	whole
	ip -n a link set va name other
	a rdma link show fa/1 | grep -q 'netdev other'
	ping_pong
	ip -n a link set other name va
	a rdma link show fa/1 | grep -q 'netdev va'
}

test_a_new_Ethernet_address() {
	whole
	local old
	old=$(a cat /sys/class/net/va/address)
	ip -n a link set va address 02:00:00:00:77:77
	ping_pong
	ip -n a link set va address "$old"
	ip -n a addr replace fd00::1/64 dev va nodad
	ping_pong
}

test_a_smaller_MTU_with_a_connection_beyond_it() {
	whole
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
	whole
	ip netns add c
	ip link add m1 netns a type veth peer name m2 netns b
	a rdma link add fm type "$FERROCE_DRIVER" netdev m1
	timeout $((20 * FERROCE_SLOWER)) ip -n a link set m1 netns c
	within 20 device_gone fm
	# it can have a new one there
	ip -n c link set m1 up
	ip netns exec c rdma link add fm type "$FERROCE_DRIVER" netdev m1
	ip netns del c
	within 20 device_gone fm
}

test_R29_GID_0_without_an_address_behind_it() {
	whole
	ip link add n1 netns a type veth peer name n2 netns b
	ip -n a link set n1 up
	ip -n b link set n2 up
	a sysctl -qw net.ipv6.conf.n1.disable_ipv6=1
	a rdma link add fn type "$FERROCE_DRIVER" netdev n1
	# the default GID stands for a link-local address that the interface has not
	a timeout $((20 * FERROCE_SLOWER)) ibv_rc_pingpong -d fn -g 0 -n 2 >server.log 2>&1 &
	within 15 listening a 18515
	not a timeout $((20 * FERROCE_SLOWER)) ibv_rc_pingpong -d fn -g 0 -n 2 127.0.0.1
	wait || true
	device_in a fn
	a ip link del n1
	within 20 device_gone fn
}

test_R21_unprivileged_users_make_and_delete_interfaces() {
	whole
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

test_routes_are_looked_up_with_the_port_and_the_class() {
	whole
	# a table that leads to a gateway which is not there
	ip -n a route replace 10.0.0.2/32 via 10.0.0.99 dev va table 77
	ip -n a rule add tos 0x10 lookup 77
	ping_pong
	ip -n a rule add ipproto udp dport 4791 lookup 77
	not ping_pong
	ip -n a rule del ipproto udp dport 4791 lookup 77
	ping_pong
}

test_a_route_that_changes_is_followed() {
	whole
	ip -n a route add 10.0.0.2/32 via 10.0.0.99 dev va
	# the socket with which the programs find each other goes another way
	ip -n a rule add ipproto tcp lookup 78
	ip -n a route replace 10.0.0.0/24 dev va table 78
	not ping_pong
	ip -n a route del 10.0.0.2/32 via 10.0.0.99 dev va
	ping_pong
}

ktap_main "$@"

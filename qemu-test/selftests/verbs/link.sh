#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --modules none
# Devices come and go: rdma link add and del, what they show, and what is refused.
#
# shellcheck disable=SC2317 # functions are called by name

here=$(cd "$(dirname "$0")" && pwd -P)
CASE_TIMEOUT=120
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() { load_driver; wire_up; }
after_all() { pair_down; }

info() { a ibv_devinfo -v -d fa; }

test_a_link_is_added() {
	add_device a
	within 5 device_in a fa
	a rdma link show fa/1 | grep -q 'state ACTIVE physical_state LINK_UP.*netdev va'
}

test_ibv_devinfo_shows_an_active_port() {
	info >info.log
	cat info.log
	grep -qE 'transport:\s+InfiniBand' info.log
	grep -qE 'state:\s+PORT_ACTIVE' info.log
	grep -qE 'active_mtu:\s+4096' info.log
	grep -qE 'link_layer:\s+Ethernet' info.log
}

test_the_GIDs_are_the_addresses_of_the_interface() {
	gid_of a 10.0.0.1
	gid_of a fd00::1
	a ip addr add 10.0.0.77/24 dev va
	within 10 gid_of a 10.0.0.77
	a ip addr del 10.0.0.77/24 dev va
	within 10 no_gid 10.0.0.77
}
no_gid() { ! gid_of a "$1"; }

test_R35_GUIDs_are_set_and_unique() {
	add_device b
	local guid
	guid() { ip netns exec "$1" ibv_devinfo -d "f$1" | sed -n "s/.*$2:[[:space:]]*//p"; }
	for guid in node_guid sys_image_guid; do
		echo "$guid: $(guid a $guid) $(guid b $guid)"
		[ "$(guid a $guid)" != 0000:0000:0000:0000 ]
		[ -n "$(guid a $guid)" ]
	done
	[ "$(guid a node_guid)" != "$(guid b node_guid)" ]
	del_device b
}

test_the_active_MTU_follows_the_interface() {
	mtu() { info | sed -n 's/.*active_mtu:[^0-9]*\([0-9]*\).*/\1/p'; }
	is() { [ "$(mtu)" = "$1" ]; }
	a ip link set va mtu 1500
	within 5 is 1024
	a ip link set va mtu "$PAIR_MTU"
	within 5 is 4096
}

test_the_port_follows_the_interface() {
	state() { a rdma link show fa/1 | grep -q "state $1"; }
	a ip link set va down
	within 5 state DOWN
	a ip link set va up
	within 5 state ACTIVE
	a ip addr replace fd00::1/64 dev va nodad
	within 10 gid_of a fd00::1
}

test_a_second_device_on_the_interface_is_refused() {
	expect_failure 'exists|EEXIST' a rdma link add second type "$FERROCE_DRIVER" netdev va
	device_gone second
	device_in a fa
}

test_a_second_device_of_the_same_name_is_refused() {
	# the RDMA core answers a known name with ENFILE
	expect_failure 'exists|Too many open' b rdma link add fa type "$FERROCE_DRIVER" netdev vb
	device_in a fa
}

test_a_link_is_deleted() {
	del_device a
	device_gone fa
	[ ! -e /sys/class/infiniband/fa ]
}

test_a_missing_interface_is_refused() {
	expect_failure '[Ii]nvalid|No such' a rdma link add fx type "$FERROCE_DRIVER" netdev nothing
	device_gone fx
}

test_a_taken_UDP_port_is_refused_and_free_again_works() {
	local holder
	ip netns exec a python3 -c 'import signal, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 4791))
signal.pause()' &
	holder=$!
	within 10 port_taken
	expect_failure 'in use' a rdma link add fa type "$FERROCE_DRIVER" netdev va
	device_gone fa
	kill "$holder"
	wait "$holder" || true
	add_device a
	device_in a fa
	del_device a
}
port_taken() { a ss -Huln 'sport = :4791' | grep -q .; }

test_the_UDP_port_is_given_back() {
	add_device a
	port_taken
	del_device a
	not port_taken
}

test_thirty_devices_come_and_go() {
	for _ in {1..30}; do
		add_device a
		del_device a
	done
	device_gone fa
}

test_R30_the_module_loads_and_unloads_ten_times() {
	for _ in {1..10}; do
		unload_driver
		load_driver
	done
}

ktap_main "$@"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --netns exclusive
# Exclusive RDMA network namespaces: a device is seen in its own namespace only.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() {
	rdma system show | grep -q 'netns exclusive'
	pair_up
}
after_all() { pair_down; }

test_each_device_is_in_its_namespace_only() {
	device_in a fa
	device_in b fb
	not device_in a fb
	not device_in b fa
	[ -z "$(rdma link show)" ]
}

test_ping_pong_between_the_namespaces() { between v4 ibv_rc_pingpong -c -n 50; }

test_ping_pong_over_IPv6() { between v6 ibv_rc_pingpong -c -n 50; }

test_both_devices_may_have_the_same_name() {
	del_device b
	b rdma link add fa type "$FERROCE_DRIVER" netdev vb
	device_in b fa
	b rdma link del fa
	device_in a fa
	add_device b
}

test_a_device_ends_with_its_namespace() {
	ip netns add c
	ip -n c link add vc type veth peer name vd
	ip netns exec c rdma link add fc type "$FERROCE_DRIVER" netdev vc
	device_in c fc
	ip netns del c
	sleep 1
	device_in a fa
}

ktap_main "$@"

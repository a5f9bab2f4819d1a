#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# The counters of a port as the performance manager has them (ports/1/counters in sysfs),
# which monitoring programs read.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() { pair_up; }
after_all() { pair_down; }

# counter NAME, hw NAME: of fa, which only the first namespace shows.
counter() { cat "/sys/class/infiniband/fa/ports/1/counters/$1"; }
hw() { cat "/sys/class/infiniband/fa/ports/1/hw_counters/$1"; }
more_than() { [ "$(counter "$1")" -gt "$2" ]; }

test_they_grow_with_the_traffic() {
	local packets data
	packets=$(counter port_xmit_packets) data=$(counter port_rcv_data)
	between v4 ibv_rc_pingpong -n 100 -s 4096
	# 100 messages of 4096 bytes each way, data in units of four bytes
	[ $(($(counter port_xmit_packets) - packets)) -ge 100 ]
	[ $(($(counter port_rcv_data) - data)) -ge $((100 * 4096 / 4)) ]
}

test_they_are_those_of_rdma_statistic() {
	[ "$FERROCE_DRIVER" = ferroce ] || skip "rdma_rxe counts sent_pkts otherwise"
	[ "$(counter port_rcv_packets)" = "$(hw rcvd_pkts)" ]
	[ "$(counter port_xmit_data)" = $(($(hw sent_bytes) / 4)) ]
}

test_a_lost_link_is_counted() {
	local before
	before=$(counter link_downed)
	a ip link set va down
	a ip link set va up
	within 5 more_than link_downed "$before"
}

ktap_main "$@"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology two-guests --peer-driver rxe
# ferroce and rdma_rxe talk to each other over a bad wire: netem loses, repeats and
# reorders packets on both sides. All data are compared; in `data` each is the requester.
#
# Only talks whose retries outlast this: a second each (`data`) or half a second (RDMA-CM),
# seven of them. A try fails when its last packet or the ACK is lost, 2 of 100 times, and
# all eight 0.02^8 = 3e-14 of the times. And only talks that say good-bye: a ping-pong's
# client leaves with its last ACK, and where that is lost the server gets no other
# (rdma_rxe and rdma_rxe: 1 of 30 times).
#
# rdma_rxe waits for its timer at every loss but the first in a message: after one NAK it
# heeds no other until an ACK (started_retry in its source). So there is little reordering;
# with a fifth of the packets out of order it gets four packets further in a second.

# shellcheck source=qemu-test/selftests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

# netem takes what the stack cuts later for one packet: nothing is to be cut.
before_all() {
	arrive
	ip link set eth0 gso_max_size 1500
}

after_all() {
	tc qdisc del dev eth0 root
	ip link set eth0 gso_max_size 65536
	leave
}

cases() {
	cat <<-END
		bad loss_1% 0 v4 data 4096
		bad duplicate_1% 1 v6 data 4096
		bad delay_1ms_reorder_1% 0 v6 data 4096
	END
	local trouble
	for trouble in loss_1% duplicate_1% delay_1ms_reorder_1%; do
		cat <<-END
			bad $trouble 0 v6 rping -C 30 -V -S 20000
			bad $trouble 1 v4 rping -C 30 -V -S 20000
		END
	done
}

# bad TROUBLE TALK…: the talk while netem does that, words joined by underscores.
bad() {
	# shellcheck disable=SC2086 # words
	tc qdisc replace dev eth0 root netem ${1//_/ }
	talk "${@:2}"
	tc -s qdisc show dev eth0
}

ktap_name() {
	local words
	read -ra words <<<"$1"
	echo "${words[1]}: ${words[*]:3}, $([ "${words[2]}" = 0 ] && echo ferroce || echo rdma_rxe) serves"
}

ktap_main "$@"

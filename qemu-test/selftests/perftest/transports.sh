#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# perftest and the ping-pongs beyond plain RC: UC, UD, atomics, shared receive queues,
# many queue pairs, and memory on demand.

# shellcheck source=qemu-test/selftests/perftest/lib.sh
. "$(dirname "$0")/lib.sh"

cases() {
	cat <<-END
		able uc run v4 ib_send_bw -c UC -s 10000 -n 100
		able uc run v4 ib_send_bw -c UC -b -s 1024 -n 100
		able uc run v4 ib_write_bw -c UC -s 65536 -n 100
		able uc run v4 ib_write_bw -c UC -q 8 -s 4096 -n 50
		able uc run v4 ib_send_lat -c UC -s 64 -n 100
		able uc run v4 ib_write_lat -c UC -s 64 -n 100
		able uc run v6 ib_write_bw -c UC -s 4097 -n 100
		able uc pingpong v4 ibv_uc_pingpong -s 4097 -n 50
		able uc pingpong v4 ibv_uc_pingpong -e -n 50
		able ud run v4 ib_send_bw -c UD -s 1024 -n 100
		able ud run v4 ib_send_bw -c UD -b -e -s 1024 -n 100
		able ud run v4 ib_send_lat -c UD -s 1024 -n 100
		able ud run v6 ib_send_bw -c UD -s 4096 -m 4096 -n 100
		able ud run v4 ib_send_lat -c UD -I 64 -s 64 -n 50
		able ud pingpong v4 ibv_ud_pingpong -s 1024 -n 50
		able ud pingpong v6 ibv_ud_pingpong -e -s 1024 -n 50
		able atomic run v4 ib_atomic_bw -A FETCH_AND_ADD -n 100
		able atomic run v4 ib_atomic_bw -A CMP_AND_SWAP -b -n 100
		able atomic run v4 ib_atomic_bw -q 8 -e -n 50
		able atomic run v4 ib_atomic_lat -A CMP_AND_SWAP -n 100
		able atomic run v6 ib_atomic_lat -A FETCH_AND_ADD -e -n 50
		able srq run v4 ib_send_bw --use-srq -q 8 -s 4096 -n 50
		able srq run v4 ib_send_lat --use-srq -s 64 -n 50
		able srq pingpong v4 ibv_srq_pingpong -q 4 -n 50
		able srq pingpong v6 ibv_srq_pingpong -e -q 4 -n 50
		run v4 ib_send_bw -q 8 -s 16384 -n 25
		run v4 ib_read_bw -q 8 -s 16384 -n 25
		run v4 ib_write_bw -q 8 -b -s 16384 -n 25
		able odp run v4 ib_send_bw --odp -s 65536 -n 50
		able odp run v4 ib_write_bw --odp -s 65536 -n 50
		able odp run v4 ib_read_bw --odp -q 4 -s 65536 -n 25
		able odp run v4 ib_write_lat --odp -s 4097 -n 50
		able odp,atomic run v4 ib_atomic_bw --odp -n 50
		able odp,ud run v4 ib_send_bw --odp -c UD -s 1024 -n 100
		able odp pingpong v4 ibv_rc_pingpong -o -n 50
		pingpong v4 ibv_rc_pingpong -N -e -n 50
		xsrq
	END
}

# What uses XRC (also perftest -c XRC) opens its domain through the user library.
xsrq() {
	expect_failure "Couldn't Open the XRC Domain 95" a ibv_xsrq_pingpong -d fa -g "$(gid_of a 10.0.0.1)"
	skip "XRC: the stock user library of the driver id opens no XRC domain; verbs/xrc.py does without"
}

ktap_name() { sed -E 's/^able [a-z,]+ //; s/^run //' <<<"$1"; }

ktap_main "$@"

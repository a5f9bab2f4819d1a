#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# perftest and the ping-pongs beyond plain RC: UC, UD, atomics, shared receive queues,
# and many queue pairs.

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
		pingpong v4 ibv_rc_pingpong -N -e -n 50
	END
}

# able FEATURE[,FEATURE…] CASE…: the case, if the device has those.
able() {
	# shellcheck disable=SC2086 # a list
	needs ${1//,/ }
	"${@:2}"
}

ktap_name() { sed -E 's/^able [a-z,]+ //; s/^run //' <<<"$1"; }

ktap_main "$@"

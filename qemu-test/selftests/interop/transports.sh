#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology two-guests --peer-driver rxe
# ferroce and rdma_rxe talk to each other beyond plain RC, each as server and as client:
# UC, UD, atomics, shared receive queues, and connections made by RDMA-CM.

# shellcheck source=qemu-test/selftests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

cases() {
	local server
	for server in 0 1; do
		cat <<-END
			talk $server v4 ibv_uc_pingpong -c -s 4097 -n 50
			talk $server v4 ib_write_bw -c UC -s 65536 -n 50
			talk $server v4 ibv_ud_pingpong -c -s 1024 -n 50
			talk $server v6 ib_send_bw -c UD -s 1024 -n 100
			talk $server v4 ib_atomic_bw -A FETCH_AND_ADD -n 100
			talk $server v4 ib_atomic_lat -A CMP_AND_SWAP -n 50
			talk $server v4 ibv_srq_pingpong -c -q 4 -n 25
			talk $server v4 ib_send_bw --use-srq -q 4 -s 4096 -n 50
			talk $server v4 rping -C 20 -V -S 65535
			talk $server v6 rping -C 20 -V
			talk $server v4 ucmatose -c 4 -C 10
			talk $server v4 udaddy -c 2 -C 10
			talk $server v4 ib_write_bw -R -s 65536 -n 50
		END
	done
}

ktap_main "$@"

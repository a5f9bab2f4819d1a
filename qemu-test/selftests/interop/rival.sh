#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology two-guests --peer-driver rxe
# ferroce and rdma_rxe talk to each other over RC, each as server and as client.

# shellcheck source=qemu-test/selftests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

cases() {
	local server family mtu
	echo talk 0 v4 data 1024 # in which each side is the requester
	echo talk 1 v6 data 4096
	for server in 0 1; do
		while read -r family mtu; do
			cat <<-END
				talk $server $family ibv_rc_pingpong -c -m $mtu -s 10000 -n 100
				talk $server $family ib_send_bw -m $mtu -s 65536 -n 50
				talk $server $family ib_write_bw -m $mtu -s 65536 -n 50
				talk $server $family ib_read_bw -m $mtu -s 65536 -n 50
			END
		done <<<$'v4 1024\nv6 4096'
		cat <<-END
			talk $server v4 ib_send_lat -s 8 -n 100
			talk $server v4 ib_send_lat -I 64 -s 64 -n 100
			talk $server v4 ib_write_lat -s 8 -n 100
			talk $server v4 ib_read_lat -s 8 -n 100
			talk $server v4 ib_read_bw -e -s 4097 -n 50
			talk $server v4 ib_write_bw -b -q 2 -s 16384 -n 50
			talk $server v4 ib_send_bw -q 8 -s 16384 -n 25
		END
	done
}

ktap_main "$@"

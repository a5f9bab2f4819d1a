#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# The latency tools of perftest and the ping-pongs of rdma-core run to their end;
# the ping-pongs compare what arrives with what was sent.

# shellcheck source=qemu-test/selftests/perftest/lib.sh
. "$(dirname "$0")/lib.sh"

cases() {
	cat <<-END
		run v4 ib_send_lat -s 8 -n 200
		run v4 ib_send_lat -e -s 8 -n 100
		run v4 ib_send_lat -I 64 -s 64 -n 100
		run v4 ib_send_lat -m 1024 -s 5000 -n 50
		run v6 ib_send_lat -s 8 -n 100
		run v4 ib_write_lat -s 8 -n 200
		run v4 ib_write_lat -s 65536 -n 50
		run v6 ib_write_lat -s 8 -n 100
		run v4 ib_read_lat -s 8 -n 200
		run v4 ib_read_lat -e -s 4096 -n 100
		run v6 ib_read_lat -s 8 -n 100
		pingpong v4 -n 200
		pingpong v4 -e -n 100
		pingpong v4 -N -n 100
		pingpong v4 -m 256 -s 4097 -n 50
		pingpong v4 -m 4096 -s 4097 -n 50
		pingpong v4 -m 1024 -s 1048576 -n 5
		pingpong v4 -r 1 -n 50
		pingpong v6 -n 100
		pingpong v6 -e -m 4096 -s 100000 -n 20
	END
}

pingpong() {
	local family=$1
	shift
	between "$family" ibv_rc_pingpong -c "$@" >client.out
	cat client.out
	grep -q 'bytes in .* seconds' client.out
	not grep -i 'invalid data' client.out server.log
}

ktap_main "$@"

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
		pingpong v4 ibv_rc_pingpong -n 200
		pingpong v4 ibv_rc_pingpong -e -n 100
		pingpong v4 ibv_rc_pingpong -N -n 100
		pingpong v4 ibv_rc_pingpong -m 256 -s 4097 -n 50
		pingpong v4 ibv_rc_pingpong -m 4096 -s 4097 -n 50
		pingpong v4 ibv_rc_pingpong -m 1024 -s 1048576 -n 5
		pingpong v4 ibv_rc_pingpong -r 1 -n 50
		pingpong v6 ibv_rc_pingpong -n 100
		pingpong v6 ibv_rc_pingpong -e -m 4096 -s 100000 -n 20
	END
}

ktap_main "$@"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# The bandwidth tools of perftest run to their end and report. Rates are not judged.

# shellcheck source=qemu-test/selftests/perftest/lib.sh
. "$(dirname "$0")/lib.sh"

cases() {
	local tool
	for tool in ib_send_bw ib_write_bw ib_read_bw; do
		cat <<-END
			run v4 $tool -s 65536 -n 200
			run v4 $tool -s 1 -n 200
			run v4 $tool -s 4097 -n 200
			run v4 $tool -s 1048576 -n 10
			run v4 $tool -m 1024 -s 65536 -n 100
			run v4 $tool -m 256 -s 10000 -n 50
			run v4 $tool -q 4 -s 16384 -n 50
			run v4 $tool -b -s 65536 -n 50
			run v6 $tool -s 65536 -n 100
			run v6 $tool -m 1024 -s 4097 -n 100
		END
	done
	cat <<-END
		run v4 ib_send_bw -e -s 65536 -n 100
		run v4 ib_read_bw -e -s 65536 -n 100
		run v4 ib_write_bw -I 64 -s 64 -n 200
		run v4 ib_send_bw -I 64 -s 64 -n 200
		run v4 ib_write_bw -l 8 -s 4096 -n 200
		run v4 ib_write_bw --write_with_imm -s 4096 -n 100
		run v4 ib_write_bw -Q 1 -s 4096 -n 100
		run v4 ib_write_bw -t 1 -s 4096 -n 100
		run v4 ib_write_bw --mr_per_qp -q 2 -s 4096 -n 50
		rows 23 v4 ib_write_bw -a -n 5
		rows 23 v6 ib_read_bw -a -n 5
		rows 23 v4 ib_send_bw -a -n 5
	END
}

ktap_main "$@"

# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the perftest scripts share: running a tool and reading its report.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() { pair_up; }
after_all() { pair_down; }

# run v4|v6 TOOL ARGS…: TOOL must succeed on both sides and report ROWS rows (one
# unless given) of positive figures.
run() {
	between "$@" >client.out
	cat client.out
	awk -v want="${ROWS:-1}" '
		/#bytes/ { table = 1; next }
		table && /^ *[0-9]+ +[0-9]+ / {
			rows++
			if ($4 <= 0 && $NF <= 0) bad = "figure that is not positive"
		}
		END {
			if (rows != want) bad = rows + 0 " rows, expected " want
			if (bad) print "report: " bad
			exit bad != ""
		}' client.out
	not grep -iE 'fail|error|warning.*(data|corrupt)|mismatch' client.out server.log
}

# rows N v4|v6 TOOL ARGS…: the same with N rows.
rows() {
	ROWS=$1
	shift
	run "$@"
}

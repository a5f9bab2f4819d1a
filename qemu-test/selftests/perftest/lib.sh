# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the perftest scripts share: running a tool and reading its report.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() { pair_up; note_features fa; }
after_all() { pair_down; }

# run v4|v6 TOOL ARGS…: TOOL must succeed on both sides and report ROWS rows (one
# unless given) of positive figures.
run() {
	between "$@" >client.out
	report
}

# report: the same of what is in client.out and server.log.
report() {
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

# pingpong v4|v6 TOOL ARGS…: a ping-pong of rdma-core, which compares what arrives with
# what was sent.
pingpong() {
	local family=$1 tool=$2
	shift 2
	between "$family" "$tool" -c "$@" >client.out
	cat client.out
	grep -q 'bytes in .* seconds' client.out
	not grep -i 'invalid data' client.out server.log
}

# able FEATURE[,FEATURE…] CASE…: the case, if the device has those.
able() {
	# shellcheck disable=SC2086 # a list
	needs ${1//,/ }
	"${@:2}"
}

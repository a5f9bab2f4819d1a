# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# KTAP for shell tests. A script sources this, defines functions `test_…` and
# ends with `ktap_main "$@"`: each function is a case, run in the order of the
# file, in a process of its own with `set -e`, within CASE_TIMEOUT seconds. What
# it prints is shown when it fails. The last case is always `dmesg clean`.
#
#   SCRIPT                 every case
#   SCRIPT --case CASE     one case, with its output as it comes
#
# FERROCE_SLOWER multiplies every limit, for kernels with many checks.
# $KTAP_NUMBER is the number of the case.
#
# Optional functions: `before_all`, `after_all` (run around the cases) and `cases`,
# which prints one case a line, a function and its arguments, instead of test_….

KTAP_SELF=$(readlink -f "$0")
CASE_TIMEOUT=${CASE_TIMEOUT:-150}
FERROCE_SLOWER=${FERROCE_SLOWER:-1}
KTAP_SKIP=4

# How a case ends early. Both say why.
skip() { echo "SKIP: $*"; exit "$KTAP_SKIP"; }
fail() { echo "FAIL: $*" >&2; exit 1; }

# not CMD…: CMD must fail (a plain `!` does not end a case).
not() {
	if "$@"; then
		fail "should have failed: $*"
	fi
}

# expect_failure PATTERN CMD…: CMD must fail, and say PATTERN (a regular
# expression) while doing so.
expect_failure() {
	local pattern=$1 said
	shift
	if said=$("$@" 2>&1); then
		fail "'$*' succeeded, it should have failed"
	fi
	grep -qE -- "$pattern" <<<"$said" || fail "'$*' said '$said', expected /$pattern/"
}

# within SECONDS CMD…: waits until CMD succeeds.
within() {
	local limit=$(($1 * FERROCE_SLOWER)) until
	shift
	until=$((SECONDS + limit))
	until "$@"; do
		[ "$SECONDS" -lt "$until" ] || fail "not so after $limit s: $*"
		sleep 0.1
	done
}

dmesg_begin() {
	KTAP_MARK="ferroce-test $$ $(basename "$0")"
	echo "$KTAP_MARK" >/dev/kmsg
}

# What the kernel says when it has been hurt.
KTAP_TROUBLE='BUG|WARNING|Oops|[Pp]anic|protection fault|Call Trace|hung task'
KTAP_TROUBLE+='|blocked for more than|soft lockup|hard LOCKUP|rcu.*(stall|detected)'
KTAP_TROUBLE+='|refcount_t|use-after-free|KASAN|UBSAN|kmemleak|leak|list_(add|del) corruption'
KTAP_TROUBLE+='|to become free|scheduling while atomic|[Ss]leeping function|Bad page'
KTAP_TROUBLE+='|unable to handle|overflow'

dmesg_trouble() {
	dmesg | awk -v mark="$KTAP_MARK" 'index($0, mark) { n = 0; next } { line[n++] = $0 }
		END { for (i = 0; i < n; i++) print line[i] }' | grep -E "$KTAP_TROUBLE"
}

# ktap_result NUMBER NAME STATUS LOG: one result line, with the log where it says more.
ktap_result() {
	local number=$1 name=$2 status=$3 log=$4 why
	case $status in
	0) echo "ok $number $name" ;;
	"$KTAP_SKIP")
		why=$(sed -n 's/^SKIP: //p' "$log" | tail -n 1)
		echo "ok $number $name # SKIP ${why:-no reason given}"
		;;
	*)
		[ "$status" != 124 ] || echo "# $name: not done after $((CASE_TIMEOUT * FERROCE_SLOWER)) s"
		tail -n 40 "$log" | sed 's/^/# /'
		echo "not ok $number $name"
		;;
	esac
}

ktap_cases() {
	if declare -F cases >/dev/null; then
		cases
	else
		grep -oE '^test_[A-Za-z0-9_]+' "$KTAP_SELF"
	fi
}

ktap_all() {
	local list number=0 case status failed=0 log
	log=$(mktemp)
	mapfile -t list < <(ktap_cases)
	echo "KTAP version 1"
	echo "1..$((${#list[@]} + 1))"
	dmesg_begin
	if declare -F before_all >/dev/null; then
		(set -e; before_all) >"$log" 2>&1 </dev/null || {
			sed 's/^/# /' "$log"
			echo "Bail out! the preparation of $(basename "$0") failed"
			exit 1
		}
	fi
	for case in "${list[@]}"; do
		number=$((number + 1)) status=0
		KTAP_NUMBER=$number timeout -k 5 $((CASE_TIMEOUT * FERROCE_SLOWER)) "$KTAP_SELF" --case "$case" >"$log" 2>&1 </dev/null || status=$?
		ktap_result "$number" "$(ktap_name "$case")" "$status" "$log"
		[ "$status" = 0 ] || [ "$status" = "$KTAP_SKIP" ] || failed=1
	done
	if declare -F after_all >/dev/null; then
		(set -e; after_all) >"$log" 2>&1 </dev/null || { sed 's/^/# after_all: /' "$log"; failed=1; }
	fi
	status=0
	! dmesg_trouble >"$log" || { status=1 failed=1; }
	ktap_result "$((number + 1))" "dmesg clean" "$status" "$log"
	rm -f "$log"
	exit "$failed"
}

# The name of a case: test_two_words is "two words". A script may have its own.
declare -F ktap_name >/dev/null || ktap_name() {
	local name=${1#test_}
	[ "$name" = "$1" ] || name=${name//_/ }
	echo "$name" | sed -E 's/^(run|rows [0-9]+) //'
}

# Ends every process that a case left behind.
kill_below() {
	local child
	for child in $(pgrep -P "$1"); do
		kill_below "$child"
		kill "$child"
	done
}

ktap_clean_up() {
	kill_below $$ 2>/dev/null || true
	rm -rf "$KTAP_DIR"
}

ktap_main() {
	if [ "${1:-}" = --case ]; then
		set -eEuo pipefail
		KTAP_DIR=$(mktemp -d)
		cd "$KTAP_DIR"
		trap 'echo "line $LINENO: $BASH_COMMAND" >&2' ERR
		trap ktap_clean_up EXIT
		# shellcheck disable=SC2086 # a case is a function and its arguments
		$2
	else
		ktap_all
	fi
}

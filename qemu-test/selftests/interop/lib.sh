# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Talks between two guests, of which one has ferroce and the other rdma_rxe. A script
# that sources this runs in both guests at once; a barrier keeps them in step.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
CASE_TIMEOUT=280
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

LIMIT=200
other=$((1 - FERROCE_NODE))

address() {
	if [ "$1" = v4 ]; then echo "10.0.0.$(($2 + 1))"; else echo "fd00::$(($2 + 1))"; fi
}

before_all() { arrive; }

arrive() {
	load_driver
	tc qdisc del dev eth0 root 2>/dev/null || true # of a script that was cut off
	rdma link add f0 type "$FERROCE_DRIVER" netdev eth0
	within 20 gid_index f0 "$(address v4 "$FERROCE_NODE")"
	within 20 gid_index f0 "$(address v6 "$FERROCE_NODE")"
	within 20 ping -c1 -W1 "$(address v4 $other)"
	within 20 ping -c1 -W1 "$(address v6 $other)"
}

after_all() { leave; }

leave() {
	barrier end || true
	rdma link del f0
	unload_driver
}

# make_command v4|v6 TOOL ARGS…: sets `command` for this side, and `ready`, a command
# that tells, given the server's PID, whether it listens.
make_command() {
	local family=$1 tool=$2 mine index
	shift 2
	mine=$(address "$family" "$FERROCE_NODE")
	index=$(gid_index f0 "$mine")
	ready=(listens 18515)
	case $tool in
	data) command=("$here/../lib/transfer.py" "$role" f0 "$mine" "$@") ready=(listens 18700) ;;
	ibv_*)
		command=("$tool" -d f0 -g "$index" "$@")
		# it listens on IPv4 only, whatever the GID
		to=$(address v4 "$server")
		;;
	rping)
		command=(rping "-${role:0:1}" -a "$to" "$@") ready=(waits_for_peers)
		return
		;;
	ucmatose | udaddy)
		command=("$tool" -b "$mine" "$@") ready=(waits_for_peers)
		[ "$role" = server ] || command+=(-s "$to")
		return
		;;
	*)
		# A second until a retry (-u 18): on a busy machine rdma_rxe runs into the usual
		# 67 ms, and when an ACK meets its repetition it numbers what follows anew, so
		# that its messages overlap (req_retry and COMPST_WRITE_SEND in its source).
		command=("$tool" -d f0 -x "$index" -u 18 "$@")
		[ "$family" = v4 ] || command+=(--ipv6-addr)
		[[ " $* " != *" -R "* ]] || command=("$tool" -d f0 "$@") ready=(waits_for_peers)
		;;
	esac
	[ "$role" = server ] || command+=("$to")
}

listens() { ss -Htln "sport = :$1" | grep -q .; }

# talk SERVER_NODE v4|v6 TOOL ARGS…
talk() {
	local server=$1 family=$2 role=client command ready pid to
	to=$(address "$family" "$server")
	shift
	[ "$FERROCE_NODE" != "$server" ] || role=server
	make_command "$@"
	barrier "start-$KTAP_NUMBER"
	if [ $role = server ]; then
		timeout -k 5 $LIMIT "${command[@]}" >output.log 2>&1 &
		pid=$!
		(within 50 "${ready[@]}" $pid) || true
		barrier "listening-$KTAP_NUMBER"
		[ "$2" != rping ] || until_done $pid
		wait $pid || [ "$2" = rping ] || { cat output.log; fail "the server failed"; }
	else
		barrier "listening-$KTAP_NUMBER"
		timeout -k 5 $LIMIT "${command[@]}" >output.log 2>&1 ||
			{ cat output.log; fail "the client failed"; }
		[ "$2" != rping ] || barrier "done-$KTAP_NUMBER"
	fi
	cat output.log
	not grep -iE 'invalid data|wrong data|mismatch' output.log
}

# until_done PID: waits until rping's client, which does the comparing, has ended well, and
# ends its server. That hears of no end when the DREQ is lost: the client does not repeat it.
until_done() {
	barrier "done-$KTAP_NUMBER" $((LIMIT + 20))
	kill "$1" 2>/dev/null || true
}

ktap_name() {
	local words
	read -ra words <<<"$1"
	echo "${words[*]:2}, $([ "${words[1]}" = 0 ] && echo ferroce || echo rdma_rxe) serves"
}

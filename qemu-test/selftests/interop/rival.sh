#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology two-guests --peer-driver rxe
# ferroce and rdma_rxe talk to each other, each as server and as client. Runs in both
# guests at once; a barrier keeps them in step.

here=$(cd "$(dirname "$0")" && pwd -P)
CASE_TIMEOUT=150
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

LIMIT=110
other=$((1 - FERROCE_NODE))

address() {
	if [ "$1" = v4 ]; then echo "10.0.0.$(($2 + 1))"; else echo "fd00::$(($2 + 1))"; fi
}

before_all() {
	load_driver
	rdma link add f0 type "$FERROCE_DRIVER" netdev eth0
	within 20 gid_index f0 "$(address v4 "$FERROCE_NODE")"
	within 20 gid_index f0 "$(address v6 "$FERROCE_NODE")"
	within 20 ping -c1 -W1 "$(address v4 $other)"
	within 20 ping -c1 -W1 "$(address v6 $other)"
}

after_all() {
	barrier end || true
	rdma link del f0
	unload_driver
}

cases() {
	local server family mtu
	for server in 0 1; do
		for family in v4 v6; do
			for mtu in 1024 4096; do
				cat <<-END
					talk $server $family data $mtu
					talk $server $family ibv_rc_pingpong -c -m $mtu -s 10000 -n 100
					talk $server $family ib_send_bw -m $mtu -s 65536 -n 50
					talk $server $family ib_write_bw -m $mtu -s 65536 -n 50
					talk $server $family ib_read_bw -m $mtu -s 65536 -n 50
				END
			done
		done
		cat <<-END
			talk $server v4 ib_send_lat -s 8 -n 100
			talk $server v4 ib_write_lat -s 8 -n 100
			talk $server v4 ib_read_bw -e -s 4097 -n 50
			talk $server v4 ib_write_bw -b -q 2 -s 16384 -n 50
		END
	done
}

# make_command v4|v6 TOOL ARGS…: sets `command` and `port` for this side, and `to`,
# where the client connects to.
make_command() {
	local family=$1 tool=$2 index
	shift 2
	index=$(gid_index f0 "$(address "$family" "$FERROCE_NODE")")
	case $tool in
	data) command=("$here/../lib/transfer.py" "$role" f0 "$(address "$family" "$FERROCE_NODE")" "$@") port=18700 ;;
	ibv_*)
		command=("$tool" -d f0 -g "$index" "$@") port=18515
		# it listens on IPv4 only, whatever the GID
		to=$(address v4 "$server")
		;;
	*)
		# A second until a retry (-u 18): on a busy machine rdma_rxe runs into the usual
		# 67 ms, and when an ACK meets its repetition it numbers what follows anew, so
		# that its messages overlap (req_retry and COMPST_WRITE_SEND in its source).
		command=("$tool" -d f0 -x "$index" -u 18 "$@") port=18515
		[ "$family" = v4 ] || command+=(--ipv6-addr)
		;;
	esac
}

listens() { ss -Htln "sport = :$1" | grep -q .; }

# talk SERVER_NODE v4|v6 TOOL ARGS…
talk() {
	local server=$1 family=$2 role=client command port pid to
	to=$(address "$family" "$server")
	shift
	[ "$FERROCE_NODE" != "$server" ] || role=server
	make_command "$@"
	barrier "start-$KTAP_NUMBER"
	if [ $role = server ]; then
		timeout -k 5 $LIMIT "${command[@]}" >output.log 2>&1 &
		pid=$!
		(within 20 listens "$port") || true
		barrier "listening-$KTAP_NUMBER"
		wait $pid || { cat output.log; fail "the server failed"; }
	else
		barrier "listening-$KTAP_NUMBER"
		timeout -k 5 $LIMIT "${command[@]}" "$to" >output.log 2>&1 ||
			{ cat output.log; fail "the client failed"; }
	fi
	cat output.log
	not grep -iE 'invalid data|wrong data|mismatch' output.log
}

ktap_name() {
	local words
	read -ra words <<<"$1"
	echo "${words[*]:2}, $([ "${words[1]}" = 0 ] && echo ferroce || echo rdma_rxe) serves"
}

ktap_main "$@"

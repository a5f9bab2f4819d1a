#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# The programs of rdmacm-utils talk through the connection manager, from namespace a
# to b: both sides must end well, and data are compared where the program can.
#
# shellcheck disable=SC2016 # scripts within the script

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() { pair_up; note_features fa; }
after_all() { pair_down; }

cases() {
	cat <<-END
		rping v4 -C 50 -V
		rping v4 -C 10 -V -S 65535
		rping v4 -C 10 -V -q
		rping v6 -C 20 -V
		rping v6 -C 10 -V -S 65535
		talk v4 ucmatose -c 1 -C 20 -S 100
		talk v4 ucmatose -c 8 -C 10 -S 4096
		talk v4 ucmatose -c 8 -C 10 -t 32
		talk v6 ucmatose -c 8 -C 10
		talk v4 udaddy -c 1 -C 20
		talk v4 udaddy -c 8 -C 10 -S 1000
		talk v6 udaddy -c 2 -C 10
		mckey v4 239.1.1.1 -C 10
		mckey v4 239.1.1.2 -C 10 -S 1000 -c 4
		mckey v6 ff0e::1234 -C 10
		copy
		client_server rdma_server rdma_client
		client_server rdma_xserver rdma_xclient -c r
		client_server rdma_xserver rdma_xclient -c x
		talk v4 cmtime -c 50
		talk v4 rstream -T v -C 20 -S 5000 -I 10
		talk v6 rstream -T v -C 20 -S 5000 -I 10
		talk v4 riostream -T v -C 20 -S 5000 -I 10
		storm
	END
}

address() { [ "$1" = v4 ] && echo "10.0.0.$2" || echo "fd00::$2"; }

# in_b CMD…: starts the server on b's CPU; sets `server`.
in_b() {
	on_cpu 1 ip netns exec b timeout -k 5 $((60 * FERROCE_SLOWER)) "$@" >server.log 2>&1 &
	server=$!
	(within 30 waits_for_peers $server) || { cat server.log; return 1; }
}

in_a() {
	on_cpu 0 ip netns exec a timeout -k 5 $((60 * FERROCE_SLOWER)) "$@" >client.log 2>&1 && return
	echo "client ended with $?:"
	cat client.log
	echo "server:"
	cat server.log
	return 1
}

served() { wait "$server" || { echo "server failed with $?:"; cat server.log; return 1; }; }

clean() { not grep -iE 'invalid|mismatch|data (error|corrupt)|failed|verify' client.log server.log; }

rping() {
	local family=$1
	shift
	needs cm
	in_b rping -s -a "$(address "$family" 2)" "$@"
	in_a rping -c -a "$(address "$family" 2)" "$@"
	# the server's status is -1 when its peer leaves before the last count
	wait $server || true
	clean
}

# talk v4|v6 TOOL ARGS…: programs whose server ends after its client.
talk() {
	local family=$1 tool=$2
	shift 2
	needs cm
	[ "$tool" != udaddy ] || needs ud
	in_b "$tool" -b "$(address "$family" 2)" "$@"
	in_a "$tool" -s "$(address "$family" 2)" -b "$(address "$family" 1)" "$@"
	served
	clean
}

# mckey v4|v6 GROUP ARGS…: what one sends the other gets.
mckey() {
	local family=$1 group=$2
	shift 2
	needs cm ud mcast
	on_cpu 1 ip netns exec b timeout -k 5 $((60 * FERROCE_SLOWER)) stdbuf -oL mckey -m "$group" -b "$(address "$family" 2)" "$@" >server.log 2>&1 &
	server=$!
	within 30 grep -qE '(receiving|initiating) data transfers|failure joining' server.log
	cannot_join "$family"
	in_a mckey -m "$group" -b "$(address "$family" 1)" -s "$@"
	served
	clean
}

# The connection manager of the kernel joins groups of IPv4 only over RoCEv2: for IPv6
# cma_iboe_join_multicast answers -ENOTSUPP (524), whatever the device.
cannot_join() {
	[ "$1" = v6 ] && grep -q 'failure joining: Unknown error 524' server.log || return 0
	kill "$server" 2>/dev/null || true
	skip "the kernel joins no IPv6 group over RoCEv2 (cma_iboe_join_multicast: ENOTSUPP); net/multicast.py tests them"
}

copy() {
	needs cm
	head -c 3000000 /dev/urandom >sent
	in_b rcopy
	in_a rcopy sent "10.0.0.2:$PWD/received"
	cmp sent received
}

client_server() {
	local one=$1 two=$2
	shift 2
	needs cm
	[ "$*" != "-c x" ] || skip "XRC: the stock user library of the driver id opens no XRC domain"
	in_b "$one" "$@"
	in_a "$two" -s 10.0.0.2 "$@"
	served
	clean
}

# Many programs connect at the same time.
storm() {
	local i pids=()
	needs cm
	in_b rping -s -P -a 10.0.0.2
	for i in {1..8}; do
		ip netns exec a timeout -k 5 $((60 * FERROCE_SLOWER)) rping -c -a 10.0.0.2 -C 3 -V >"storm.$i" 2>&1 &
		pids+=($!)
	done
	for i in {1..8}; do
		wait "${pids[i - 1]}" || { cat "storm.$i"; fail "client $i"; }
	done
	kill $server
}

ktap_main "$@"

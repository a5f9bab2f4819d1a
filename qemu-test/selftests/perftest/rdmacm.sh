#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# perftest with RDMA-CM: it makes the connections (-R), or its connection carries what
# plain queue pairs must know of each other (-z).

# shellcheck source=qemu-test/selftests/perftest/lib.sh
. "$(dirname "$0")/lib.sh"

cases() {
	cat <<-END
		able cm run_cm v4 ib_send_bw -R -s 65536 -n 50
		able cm run_cm v4 ib_send_bw -R -b -q 4 -s 16384 -n 25
		able cm run_cm v4 ib_send_lat -R -e -s 64 -n 50
		able cm run_cm v4 ib_send_lat -R -I 64 -s 64 -n 50
		able cm run_cm v4 ib_write_bw -R -q 8 -s 4096 -n 50
		able cm run_cm v4 ib_write_lat -R -s 64 -n 50
		able cm run_cm v4 ib_read_bw -R -q 8 -s 65536 -n 25
		able cm run_cm v4 ib_read_lat -R -s 64 -n 50
		able cm,atomic run_cm v4 ib_atomic_bw -R -n 50
		able cm,atomic run_cm v4 ib_atomic_lat -R -A CMP_AND_SWAP -n 50
		able cm,srq run_cm v4 ib_send_bw -R --use-srq -q 4 -s 4096 -n 50
		able cm,ud run_cm v4 ib_send_bw -R -c UD -s 1024 -n 100
		able cm,ud run_cm v4 ib_send_lat -R -c UD -s 1024 -n 50
		able cm,odp run_cm v4 ib_write_bw -R --odp -s 65536 -n 25
		able cm run_cm v6 ib_write_bw -R -s 65536 -n 50
		able cm run_cm v6 ib_send_lat -R -e -s 64 -n 50
		able cm run_cm v4 ib_send_bw -z -s 4096 -n 50
		able cm run_cm v4 ib_write_bw -z -q 2 -s 65536 -n 25
		able cm,uc run_cm v4 ib_write_bw -z -c UC -s 4096 -n 50
		able cm run_cm v6 ib_read_lat -z -s 64 -n 50
	END
}

# run_cm v4|v6 TOOL ARGS…: as run, but the two find each other through RDMA-CM.
run_cm() {
	local family=$1 tool=$2 to=10.0.0.2 from=10.0.0.1 limit=$((60 * FERROCE_SLOWER))
	local here=(-d fa) there=(-d fb) server status=0
	shift 2
	[ "$family" = v4 ] || { to=fd00::2 from=fd00::1 here+=(--ipv6-addr) there+=(--ipv6-addr); }
	[[ " $* " != *" -z "* ]] || { here+=(-x "$(gid_of a $from)") there+=(-x "$(gid_of b $to)"); }
	on_cpu 1 ip netns exec b timeout -k 5 $limit "$tool" "${there[@]}" "$@" >server.log 2>&1 &
	server=$!
	within 30 waits_for_peers $server
	on_cpu 0 ip netns exec a timeout -k 5 $limit "$tool" "${here[@]}" "$@" $to >client.out 2>&1 || status=$?
	[ "$status" = 0 ] || { kill $server; cat client.out server.log; fail "the client ended with $status"; }
	wait $server || { cat server.log; fail "the server failed"; }
	report
}

ktap_name() { sed -E 's/^able [a-z,]+ run_cm //' <<<"$1"; }

ktap_main "$@"

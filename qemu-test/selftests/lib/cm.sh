# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# RDMA-CM between namespaces a and b, in whatever mode RDMA devices are seen. A script
# sources this after ktap.sh and driver.sh, and has the cases.

before_all() { pair_up; }
after_all() { pair_down; }

cases() { sed -nE 's/^(test_[A-Za-z0-9_]+)\(\).*/\1/p' "${BASH_SOURCE[0]}"; }

# cm_listening NS PORT: somebody listens with RDMA-CM.
cm_listening() { ip netns exec "$1" rdma resource show cm_id | grep -q "LISTEN.*:$2\b"; }

# talk SERVER_NS PORT CLIENT_NS SERVER… -- CLIENT…: runs both, which must succeed.
talk() {
	local there=$1 port=$2 here=$3 server=() pid
	shift 3
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	ip netns exec "$there" timeout -k 5 $((60 * FERROCE_SLOWER)) "${server[@]}" >server.log 2>&1 &
	pid=$!
	within 20 cm_listening "$there" "$port"
	ip netns exec "$here" timeout -k 5 $((50 * FERROCE_SLOWER)) "$@" || { cat server.log; fail "client: $*"; }
	wait "$pid" || { cat server.log; fail "server: ${server[*]}"; }
}

test_rping_over_IPv4() {
	talk b 7174 a rping -s -a 10.0.0.2 -C 20 -V -S 4000 -- rping -c -a 10.0.0.2 -C 20 -V -S 4000
}

test_rping_the_other_way() {
	talk a 7174 b rping -s -a 10.0.0.1 -C 20 -V -- rping -c -a 10.0.0.1 -C 20 -V
}

test_rping_over_IPv6() {
	talk b 7174 a rping -s -a fd00::2 -C 20 -V -- rping -c -a fd00::2 -C 20 -V
}

test_rping_over_a_VLAN() {
	local ns addr=1
	for ns in a b; do
		ip -n "$ns" link add link "v$ns" name "v$ns.5" type vlan id 5
		ip -n "$ns" addr add "10.5.0.$addr/24" dev "v$ns.5"
		ip -n "$ns" link set "v$ns.5" up
		within 10 gid_of "$ns" "10.5.0.$addr" >/dev/null
		addr=2
	done
	talk b 7174 a rping -s -a 10.5.0.2 -C 5 -V -- rping -c -a 10.5.0.2 -C 5 -V
	ip -n a link del va.5
	ip -n b link del vb.5
}

test_ucmatose_with_eight_connections() {
	talk b 7471 a ucmatose -b 10.0.0.2 -c 8 -- ucmatose -s 10.0.0.2 -c 8
}

test_udaddy_resolves_and_sends_datagrams() {
	talk b 7174 a udaddy -b 10.0.0.2 -c 4 -- udaddy -s 10.0.0.2 -c 4
}

test_nobody_listens() {
	expect_failure 'reject|error' a timeout $((30 * FERROCE_SLOWER)) rping -c -a 10.0.0.2 -C 1 -p 7999
}

test_R4_connect_disconnect_and_connect_at_once() {
	local i began=$SECONDS
	b timeout -k 5 $((100 * FERROCE_SLOWER)) rping -s -P -a 10.0.0.2 >server.log 2>&1 &
	within 20 cm_listening b 7174
	for i in {1..12}; do
		a timeout -k 5 $((20 * FERROCE_SLOWER)) rping -c -a 10.0.0.2 -C 1 || { cat server.log; fail "connection $i"; }
	done
	# a stale connection would be refused, or waited for through timeouts of seconds
	[ $((SECONDS - began)) -lt 90 ]
}

test_no_queue_pair_is_left() {
	within 20 no_more a
	within 20 no_more b
}

# no_more NS: no process has a queue pair there.
no_more() { ! ip netns exec "$1" rdma resource show qp | grep -v 'comm \[' | grep -q pid; }

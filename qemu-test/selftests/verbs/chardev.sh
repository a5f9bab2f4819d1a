#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# The character device as people use it: `ferroce devices` and `ferroce perf write`.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

PATH=$FERROCE_DIR/build/bin:$PATH
PORT=18700

before_all() {
	[ "$FERROCE_DRIVER" = ferroce ] || { echo "rdma_rxe has no such device file"; return 1; }
	pair_up
}
after_all() { pair_down; }

# write_between SERVER-ADDRESS [ARGS…]: a server in b, a client in a; prints what the client said.
write_between() {
	local to=$1 server
	shift
	b timeout -k 5 $((40 * FERROCE_SLOWER)) ferroce perf write --port $PORT >server.log 2>&1 &
	server=$!
	within 15 listening b $PORT
	a timeout -k 5 $((40 * FERROCE_SLOWER)) ferroce perf write --port $PORT "$@" "$to" || { cat server.log; return 1; }
	wait "$server" || { cat server.log; return 1; }
	grep -q 'data verified' server.log
}

start_endless() {
	b timeout -k 5 $((90 * FERROCE_SLOWER)) ferroce perf write --port $PORT >server.log 2>&1 &
	SERVER=$!
	within 15 listening b $PORT
	a timeout -k 5 $((90 * FERROCE_SLOWER)) ferroce perf write --port $PORT --duration 60 10.0.0.2 >client.log 2>&1 &
	CLIENT=$!
	within 15 busy
}
client_pid() { pgrep -x ferroce -a | awk '/--duration/ { print $1 }'; }
server_pid() { pgrep -x ferroce -a | awk '!/--duration/ { print $1 }'; }
busy() { [ "$(a cat /sys/class/net/va/statistics/tx_bytes)" -gt $((BUSY_FROM + 3000000)) ]; }
mark() { BUSY_FROM=$(a cat /sys/class/net/va/statistics/tx_bytes); }

dead() { ! kill -0 "$1" 2>/dev/null; }

json() { python3 -c "import json, sys; value = json.load(sys.stdin); print($1)"; }

test_devices() {
	ferroce devices | tee devices
	grep -q '^fa: index [0-9]*, netdev va ([0-9]*), active, MTU 4200, path MTU 4096$' devices
	grep -q '::ffff:10.0.0.2$' devices
	[ "$(ferroce devices --json | json 'sorted(d["name"] for d in value if d["active"])')" = "['fa', 'fb']" ]
}

test_write_over_IPv4() { write_between 10.0.0.2 --iters 500; }
test_write_over_IPv6() { write_between fd00::2 --iters 500; }

test_sizes() {
	local size
	for size in 1 1000 4097 1M; do
		write_between 10.0.0.2 --size $size --iters 100 --depth 16
	done
}

test_depths() {
	local depth
	for depth in 1 5 1000; do
		write_between 10.0.0.2 --size 4096 --iters 2000 --depth $depth
	done
}

test_json_and_duration() {
	write_between 10.0.0.2 --duration 1 --json >result
	[ "$(json '(value["verified"], value["size"], value["seconds"] >= 1)' <result)" = "(True, 65536, True)" ]
}

test_device_and_gid_of_choice() {
	local gid
	gid=$(gid_of a fd00::1)
	write_between 10.0.0.2 --device fa --iters 10 | grep -q 'fa 10.0.0.1 to 10.0.0.2'
	expect_failure 'no ferroce device nosuch' write_between 10.0.0.2 --device nosuch
	expect_failure 'fa has no GID 200' write_between 10.0.0.2 --device fa --gid-index 200
	b ferroce perf write --port $PORT --device fb --gid-index "$(gid_of b fd00::2)" >server.log 2>&1 &
	within 15 listening b $PORT
	a ferroce perf write --port $PORT --device fa --gid-index "$gid" --iters 10 10.0.0.2 |
		grep -q 'fa fd00::1 to fd00::2'
}

test_nobody_listens() {
	expect_failure 'cannot reach 10.0.0.2 on TCP port 18700' a ferroce perf write --port $PORT 10.0.0.2
}

test_client_killed_under_traffic() {
	mark
	start_endless
	kill -KILL "$(client_pid)"
	within 30 dead "$SERVER"
	grep -q 'the peer' server.log
	write_between 10.0.0.2 --iters 100
}

test_server_killed_under_traffic() {
	mark
	start_endless
	kill -KILL "$(server_pid)"
	within 30 dead "$CLIENT"
	cat client.log
	grep -Eq 'the peer does not answer|cannot send to the peer' client.log
	write_between 10.0.0.2 --iters 100
}

test_link_del_under_traffic() {
	mark
	start_endless
	timeout $((30 * FERROCE_SLOWER)) ip netns exec a rdma link del fa
	within 30 dead "$CLIENT"
	cat client.log
	grep -q 'No such device' client.log
	within 30 dead "$SERVER"
	pair_up
	write_between 10.0.0.2 --iters 100
}

test_module_stays_while_the_file_is_open() {
	mark
	start_endless
	expect_failure 'in use' rmmod ferroce
	kill "$(client_pid)"
	within 30 dead "$SERVER"
}

ktap_main "$@"

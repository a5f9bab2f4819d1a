# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The driver under test and its two hosts in one guest: namespaces a and b joined
# by a veth pair (va 10.0.0.1 fd00::1, vb 10.0.0.2 fd00::2), RDMA devices fa, fb.
# FERROCE_DRIVER=rxe runs the same on rdma_rxe, which shows what a test is worth.

FERROCE_DRIVER=${FERROCE_DRIVER:-ferroce}
FERROCE_DIR=${FERROCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd -P)}
PAIR_MTU=${PAIR_MTU:-4200}

case $FERROCE_DRIVER in
ferroce) MODULE=ferroce ;;
rxe) MODULE=rdma_rxe ;;
*) echo "FERROCE_DRIVER is '$FERROCE_DRIVER'; it can be ferroce or rxe" >&2; exit 1 ;;
esac

a() { ip netns exec a "$@"; }
b() { ip netns exec b "$@"; }

loaded() { grep -q "^$MODULE " /proc/modules; }

load_driver() {
	modprobe -a ib_uverbs rdma_ucm
	loaded && return
	if [ "$MODULE" = ferroce ]; then
		local ko=$FERROCE_DIR/build/ferroce.ko needs
		[ -e "$ko" ] || { echo "no $ko; 'make modules' builds it" >&2; return 1; }
		needs=$(modinfo -F depends "$ko" | tr , ' ')
		# shellcheck disable=SC2086 # a list of modules
		[ -z "$needs" ] || modprobe -a $needs
		insmod "$ko"
	else
		modprobe "$MODULE"
	fi
}

unload_driver() {
	! loaded || rmmod "$MODULE"
}

# The namespaces and the wire, unless they are there.
wire_up() {
	ip netns list | grep -qw a || ip netns add a
	ip netns list | grep -qw b || ip netns add b
	a ip link show va >/dev/null 2>&1 && return
	ip link add va netns a type veth peer name vb netns b
	local ns addr
	for ns in a b; do
		addr=1
		[ "$ns" = a ] || addr=2
		ip -n "$ns" link set lo up
		ip -n "$ns" link set "v$ns" mtu "$PAIR_MTU" up
		ip -n "$ns" addr add "10.0.0.$addr/24" dev "v$ns"
		# no duplicate address detection, which would take a second
		ip -n "$ns" addr add "fd00::$addr/64" dev "v$ns" nodad 2>/dev/null || true
	done
}

device_exists() { rdma link show "$1/1" >/dev/null 2>&1; }
device_gone() { ! device_exists "$1"; }

# add_device a|b: fa on va in a, or fb on vb in b.
add_device() {
	device_in "$1" "f$1" || ip netns exec "$1" rdma link add "f$1" type "$FERROCE_DRIVER" netdev "v$1"
}
device_in() { ip netns exec "$1" rdma link show "$2/1" >/dev/null 2>&1; }
del_device() { ip netns exec "$1" rdma link del "f$1"; }

pair_up() {
	load_driver
	wire_up
	add_device a
	add_device b
	within 10 gid_of a 10.0.0.1 >/dev/null
	within 10 gid_of b 10.0.0.2 >/dev/null
	[ ! -e /proc/sys/net/ipv6 ] || within 10 gid_of b fd00::2 >/dev/null
}

# One host without namespaces, which users in the kernel need: fa on va, 10.0.0.1 fd00::1.
host_up() {
	load_driver
	ip link set lo up
	ip link add va type veth peer name vb
	ip link set vb up
	ip link set va mtu "$PAIR_MTU" up
	ip addr add 10.0.0.1/24 dev va
	ip addr add fd00::1/64 dev va nodad
	host_device
}
host_device() {
	rdma link add fa type "$FERROCE_DRIVER" netdev va
	within 10 gid_index fa 10.0.0.1 >/dev/null
}

pair_down() {
	! device_in a fa || del_device a
	! device_in b fb || del_device b
	unload_driver
}

# gid_text ADDRESS: as sysfs prints it.
gid_text() {
	local address=$1 head tail words word text missing
	case $address in
	*.*)
		IFS=. read -ra words <<<"$address"
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' "${words[@]}"
		return
		;;
	*::*) head=${address%%::*} tail=${address##*::} ;;
	*) head=$address tail= ;;
	esac
	read -ra words <<<"${head//:/ } @ ${tail//:/ }"
	for word in "${words[@]}"; do
		if [ "$word" = @ ]; then
			for ((missing = ${#words[@]}; missing <= 8; missing++)); do text+=:0000; done
		else
			text+=$(printf ':%04x' "0x$word")
		fi
	done
	echo "${text#:}"
}

# gid_of a|b ADDRESS: the index of the RoCEv2 GID of that address on fa or fb.
gid_of() { gid_index "f$1" "$2" ip netns exec "$1"; }

# gid_index DEVICE ADDRESS [PREFIX…]: the same; PREFIX gets to where the device is.
gid_index() {
	local device=$1 want
	want=$(gid_text "$2")
	shift 2
	# shellcheck disable=SC2016 # expanded by the inner shell
	"$@" bash -c 'cd "/sys/class/infiniband/$1/ports/1" || exit 1
		for i in {0..31}; do
			read -r gid <"gids/$i" && [ "$gid" = "$2" ] || continue
			read -r type <"gid_attrs/types/$i" && [ "$type" = "RoCE v2" ] || continue
			echo "$i"
			exit 0
		done 2>/dev/null
		exit 1' bash "$device" "$want"
}

# on_cpu N CMD…: CMD on that CPU, or on the last one if there are fewer. Both ends of a
# connection spin for completions, which on one CPU would wait for the scheduler's tick.
on_cpu() {
	local last
	last=$(($(nproc) - 1))
	taskset -c "$(($1 < last ? $1 : last))" "${@:2}"
}

# between v4|v6 TOOL ARGS…: runs TOOL as server on fb and as client on fa, each on a CPU
# of its own, both of which must succeed; prints what the client printed.
between() {
	local family=$1 tool=$2 ga gb to=10.0.0.2 from=10.0.0.1 flag=-x server status=0 more=()
	shift 2
	[ "$family" = v4 ] || { to=fd00::2 from=fd00::1; }
	ga=$(gid_of a "$from") gb=$(gid_of b "$to")
	case $tool in
	# listens on IPv4 only, whatever the GID
	ibv_*) flag=-g to=10.0.0.2 ;;
	*) [ "$family" = v4 ] || more=(--ipv6-addr) ;;
	esac
	on_cpu 1 ip netns exec b timeout -k 5 $((${RUN_TIMEOUT:-40} * ${FERROCE_SLOWER:-1})) "$tool" -d fb "$flag" "$gb" "${more[@]}" "$@" >server.log 2>&1 &
	server=$!
	within 15 listening b 18515
	on_cpu 0 ip netns exec a timeout -k 5 $((${RUN_TIMEOUT:-40} * ${FERROCE_SLOWER:-1})) "$tool" -d fa "$flag" "$ga" "${more[@]}" "$@" "$to" >client.log 2>&1 ||
		status=$?
	if [ "$status" != 0 ]; then
		echo "client ended with $status:"; cat client.log
		kill "$server" 2>/dev/null || true
		echo "server:"; cat server.log
		return 1
	fi
	wait "$server" || { echo "server failed:"; cat server.log; return 1; }
	cat client.log
}

listening() { ip netns exec "$1" ss -Htln "sport = :$2" | grep -q .; }

# note_features DEVICE: once, what the device says it can do; `needs` looks it up.
FEATURES=/tmp/device-features
note_features() { "$FERROCE_DIR/qemu-test/selftests/lib/features.py" "$1" >$FEATURES; }

# needs FEATURE…: skips the case when the device has not all of them.
needs() {
	local feature
	for feature in "$@"; do
		grep -qw "$feature" $FEATURES || skip "the device has no $feature: $(cat $FEATURES)"
	done
}

# Below PID, a program (or a thread of it) sleeps in the connection manager, or until
# someone knocks.
waits_for_peers() {
	local below=$1 next
	while next=$(pgrep -P "$below" | head -n 1) && [ -n "$next" ]; do below=$next; done
	! grep -qw timeout "/proc/$below/comm" 2>/dev/null &&
		cat "/proc/$below/task/"*/wchan 2>/dev/null | grep -qE 'ucma|accept|poll_schedule|unix_stream'
}

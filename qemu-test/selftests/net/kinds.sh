#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --modules none
# A device on every kind of interface that carries IP: data arrives whole, through the right
# interface, and the device goes with the interface.

here=$(cd "$(dirname "$0")" && pwd -P)
CASE_TIMEOUT=120
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() {
	modprobe -a 8021q bonding bridge macvlan ipvlan tun dummy
	load_driver
	wire_up
}
after_all() { unload_driver; }

# rdma_on NS DEVICE NETDEV ADDRESS: a device, and its GID of that address.
rdma_on() {
	ip netns exec "$1" rdma link add "$2" type "$FERROCE_DRIVER" netdev "$3"
	within 15 gid_index "$2" "$4" ip netns exec "$1"
}

# talk NS DEVICE ADDRESS NS DEVICE ADDRESS [ARG…]: checked ping-pongs of 20000 bytes from the
# second to the first over these GIDs; they find each other over the wire between the namespaces,
# or inside of one.
talk() {
	local server=$1 client=$4 to=10.0.0.2 there here args=("${@:7}")
	[ "$server" != "$client" ] || to=127.0.0.1
	# an interface that was just set up drops what it is to send, for up to a second
	[[ $3 != *.* ]] || within 15 ip netns exec "$client" ping -qc 1 -W 1 "$3" >/dev/null
	there=$(gid_index "$2" "$3" ip netns exec "$server")
	here=$(gid_index "$5" "$6" ip netns exec "$client")
	ip netns exec "$server" timeout -k 5 $((60 * FERROCE_SLOWER)) ibv_rc_pingpong -d "$2" -g "$there" -c -s 20000 -n 30 "${args[@]}" >server.log 2>&1 &
	local pid=$!
	within 15 listening "$server" 18515
	ip netns exec "$client" timeout -k 5 $((60 * FERROCE_SLOWER)) ibv_rc_pingpong -d "$5" -g "$here" -c -s 20000 -n 30 "${args[@]}" "$to" || {
		cat server.log
		return 1
	}
	wait "$pid" || { cat server.log; return 1; }
}

# ends NS NETDEV DEVICE: the device goes with its interface.
ends() {
	timeout $((20 * FERROCE_SLOWER)) ip -n "$1" link del "$2"
	within 20 device_gone "$3"
}

# New namespaces and a new wire for a case.
fresh() {
	ip netns del a
	ip netns del b
	within 20 no_devices
	wire_up
}
no_devices() { [ -z "$(rdma link show)" ]; }

each() { local ns; for ns in b a; do "$@" "$ns"; done; }
number() { [ "$1" = a ] && echo 1 || echo 2; }

# How many packets have left through an interface.
sent_by() { ip netns exec "$1" cat "/sys/class/net/$2/statistics/tx_packets"; }

vlan_up() { ip -n "$1" link add link "v$1" name "v$1.5" up type vlan id 5; ip -n "$1" addr add "10.5.0.$(number "$1")/24" dev "v$1.5"; }

test_a_VLAN_itself_is_refused() {
	fresh
	each vlan_up
	expect_failure 'not permitted' a rdma link add fx type "$FERROCE_DRIVER" netdev va.5
	device_gone fx
}

test_an_address_of_a_VLAN_above_the_device() {
	fresh
	each vlan_up
	rdma_on b kb vb 10.5.0.2
	rdma_on a ka va 10.5.0.1
	local before
	before=$(sent_by a va.5)
	talk b kb 10.5.0.2 a ka 10.5.0.1
	[ "$(sent_by a va.5)" -gt "$((before + 30))" ]
	# link-local addresses of the VLAN, which are those of the interface below too
	talk_link_local
	# the VLAN goes, the device stays
	ip -n a link del va.5
	device_in a ka
	ends a va ka
}

# The GID index of fe80:: on a VLAN's interface.
vlan_gid() {
	# shellcheck disable=SC2016 # the inner shell expands it
	ip netns exec "$1" bash -c 'cd "/sys/class/infiniband/$1/ports/1" && for i in {0..31}; do
		[ "$(cat gid_attrs/ndevs/$i 2>/dev/null)" = "$2" ] || continue
		[ "$(cat gid_attrs/types/$i 2>/dev/null)" = "RoCE v2" ] || continue
		case $(cat gids/$i) in fe80:*) echo $i; exit 0;; esac
	done; exit 1' bash "$2" "$3"
}

talk_link_local() {
	local there here before pid
	within 10 vlan_gid b kb vb.5
	within 10 vlan_gid a ka va.5
	there=$(vlan_gid b kb vb.5) here=$(vlan_gid a ka va.5)
	before=$(sent_by a va.5)
	b timeout $((60 * FERROCE_SLOWER)) ibv_rc_pingpong -d kb -g "$there" -c -n 30 >server.log 2>&1 &
	pid=$!
	within 15 listening b 18515
	a timeout $((60 * FERROCE_SLOWER)) ibv_rc_pingpong -d ka -g "$here" -c -n 30 10.0.0.2
	wait "$pid"
	[ "$(sent_by a va.5)" -gt "$((before + 30))" ]
}

bond_up() {
	ip -n "$1" link add bond0 type bond mode active-backup miimon 50
	ip -n "$1" addr add "10.6.0.$(number "$1")/24" dev bond0
	local slave
	for slave in s1 s2; do ip -n "$1" link set $slave master bond0; done
	ip -n "$1" link set bond0 mtu 4200 up
}
two_wires() {
	local wire
	for wire in s1 s2; do ip link add $wire netns a type veth peer name $wire netns b; done
}

test_R39_a_bond_and_its_failover() {
	fresh
	two_wires
	each bond_up
	rdma_on b kb bond0 10.6.0.2
	rdma_on a ka bond0 10.6.0.1
	talk b kb 10.6.0.2 a ka 10.6.0.1
	# a ping-pong during which the wire that carries it goes
	local active
	active=$(a cat /sys/class/net/bond0/bonding/active_slave)
	(sleep 1; ip -n a link set "$active" down) &
	talk b kb 10.6.0.2 a ka 10.6.0.1 -n 5000 -s 100
	[ "$(a cat /sys/class/net/bond0/bonding/active_slave)" != "$active" ]
	ends a bond0 ka
	ends b bond0 kb
}

test_an_address_of_a_bond_above_the_device() {
	fresh
	two_wires
	each bond_up
	rdma_on b kb s1 10.6.0.2
	rdma_on a ka s1 10.6.0.1
	talk b kb 10.6.0.2 a ka 10.6.0.1
	ends a s1 ka
	within 20 device_gone kb
}

test_R39_a_bridge() {
	fresh
	bridge_up
	rdma_on b kb vb 10.0.0.2
	rdma_on a ka br0 10.7.0.1
	b ip addr add 10.7.0.2/24 dev vb
	within 10 gid_index kb 10.7.0.2 ip netns exec b
	talk b kb 10.7.0.2 a ka 10.7.0.1
	ends a br0 ka
}
# The address moves from va to the bridge's 10.7.0.1; 10.0.0.1 stays for the other socket.
bridge_up() {
	ip -n a link add br0 mtu 4200 up type bridge
	ip -n a link set va master br0
	ip -n a addr del 10.0.0.1/24 dev va
	ip -n a addr add 10.0.0.1/24 dev br0
	ip -n a addr add 10.7.0.1/24 dev br0
}
macvlan_up() {
	# or the interface below answers for the macvlan's address too, with its own Ethernet
	# address, and takes packets that the device above never sees
	ip netns exec "$1" sysctl -qw net.ipv4.conf.all.arp_ignore=1
	ip -n "$1" link add mv0 link "v$1" up type macvlan mode bridge
	ip -n "$1" addr add "10.8.0.$(number "$1")/24" dev mv0
}
test_R39_a_macvlan() {
	fresh
	each macvlan_up
	rdma_on b kb mv0 10.8.0.2
	rdma_on a ka mv0 10.8.0.1
	talk b kb 10.8.0.2 a ka 10.8.0.1
	ends a mv0 ka
	ends b mv0 kb
}

ipvlan_up() { ip -n "$1" link add iv0 link "v$1" up type ipvlan mode l2; ip -n "$1" addr add "10.9.0.$(number "$1")/24" dev iv0; }
test_R35_R39_ipvlans_share_an_address_but_not_a_GUID() {
	fresh
	each ipvlan_up
	rdma_on b kb iv0 10.9.0.2
	rdma_on a ka iv0 10.9.0.1
	rdma_on a kc va 10.0.0.1
	[ "$(node_guid a ka)" != "$(node_guid a kc)" ]
	talk b kb 10.9.0.2 a ka 10.9.0.1
	ends a iv0 ka
	ends b iv0 kb
}
node_guid() { ip netns exec "$1" cat "/sys/class/infiniband/$2/node_guid"; }

# A program that carries what one tunnel's end writes to the other's.
tunnel() {
	python3 - "$1" <<'END' &
import fcntl, os, select, struct, sys, threading
kind = {"tun": 0x1001, "tap": 0x1002}[sys.argv[1]]
ends = []
for name in ("a", "b"):
    with open(f"/run/netns/{name}") as namespace:
        os.setns(namespace.fileno(), os.CLONE_NEWNET)
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, 0x400454CA, struct.pack("16sH22x", b"t0", kind))
    ends.append(end)
while True:
    for end in select.select(ends, [], [])[0]:
        data = os.read(end, 70000)
        try:
            os.write(ends[1 - ends.index(end)], data)
        except OSError:
            pass
END
	TUNNEL=$!
	within 10 ip -n b link show t0
	local ns
	for ns in a b; do
		ip -n $ns link set t0 mtu 4200 up
		ip -n $ns addr add "10.11.0.$(number $ns)/24" dev t0
	done
}

over_tunnel() {
	tunnel "$1"
	rdma_on b kb t0 10.11.0.2
	rdma_on a ka t0 10.11.0.1
	[ "$(node_guid a ka)" != "$(node_guid b kb)" ]
	[ "$(node_guid a ka)" != 0000:0000:0000:0000 ]
	# the program is slow, and the ping-pong gives up after half a second
	talk b kb 10.11.0.2 a ka 10.11.0.1 -s 3000 -n 5
	# the interfaces go with the program
	kill "$TUNNEL"
	within 20 device_gone ka
	within 20 device_gone kb
}

test_R39_a_tap_with_a_program_behind_it() { fresh; over_tunnel tap; }

test_R39_a_tun_which_has_no_Ethernet() { fresh; over_tunnel tun; }

test_R39_a_dummy_talks_to_itself() {
	fresh
	ip -n a link add dm0 mtu 4200 up type dummy
	ip -n a addr add 10.12.0.1/24 dev dm0
	ip -n a addr add fd12::1/64 dev dm0 nodad
	rdma_on a ka dm0 10.12.0.1
	talk a ka 10.12.0.1 a ka 10.12.0.1
	talk a ka fd12::1 a ka fd12::1
	ends a dm0 ka
}

test_the_loopback_interface() {
	fresh
	rdma_on a ka lo 127.0.0.1
	[ "$(node_guid a ka)" != 0000:0000:0000:0000 ]
	talk a ka 127.0.0.1 a ka 127.0.0.1
	a rdma link del ka
	device_gone ka
}

test_R35_many_devices_of_one_host_have_GUIDs_of_their_own() {
	fresh
	local i all
	for i in {1..8}; do
		# all with one Ethernet address
		ip -n a link add "dm$i" address 02:11:22:33:44:55 up type dummy
		a rdma link add "k$i" type "$FERROCE_DRIVER" netdev "dm$i"
	done
	all=$(for i in {1..8}; do node_guid a "k$i"; done)
	echo "$all"
	[ "$(sort -u <<<"$all" | wc -l)" = 8 ]
	not grep -q 0000:0000:0000:0000 <<<"$all"
	for i in {1..8}; do
		[ "$(node_guid a "k$i")" = "$(a cat "/sys/class/infiniband/k$i/sys_image_guid")" ]
		ip -n a link del "dm$i"
	done
	within 20 device_gone k8
}

test_an_interface_that_carries_one_peer_only_is_refused() {
	fresh
	modprobe ip_gre
	a ip link add gre9 type gre remote 10.9.9.9 local 10.0.0.1
	expect_failure 'not supported|[Ii]nvalid' a rdma link add fx type "$FERROCE_DRIVER" netdev gre9
	device_gone fx
	a ip link del gre9
}

ktap_main "$@"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology single --modules none
# The kernel's own selftests of rdma_rxe, run on ferroce. `qemu-test/check` copies
# them from the kernel source into build/kernel-selftests; commands of the same name
# in front of PATH turn what they say about rxe into ferroce, and tun interfaces,
# which have no Ethernet, into tap.
#
# shellcheck disable=SC2016 # scripts within the script

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

SCRIPTS=$FERROCE_DIR/build/kernel-selftests/rdma

cases() {
	local name
	for name in ipv6 socket_with_netns netns_names test_NETDEV_UNREGISTER sent_rcvd_bytes; do
		echo "kernel_test rxe_$name.sh"
	done
}

# shim NAME BODY: a command NAME before all others; $real is the one it stands for.
shim() {
	printf '#!/bin/bash\nPATH=%s\nreal=%s\n%s\n' "$PATH" "$(command -v "$1")" "$2" >"bin/$1"
	chmod +x "bin/$1"
}

make_shims() {
	mkdir bin
	modprobe -a ib_uverbs rdma_ucm udp_tunnel ip6_udp_tunnel tun dummy veth
	shim rdma 'exec $real "${@/#%rxe/ferroce}"'
	shim ip 'exec $real "${@/#%tun/tap}"'
	shim modinfo '[ "$1" != rdma_rxe ] || exit 0; exec $real "$@"'
	shim modprobe 'case $* in
		"-r rdma_rxe") exec rmmod ferroce ;;
		rdma_rxe) grep -q "^ferroce " /proc/modules || exec insmod '"$FERROCE_DIR"'/build/ferroce.ko; exit 0 ;;
		*) exec $real "$@" ;;
	esac'
	PATH=$PWD/bin:$PATH
}

kernel_test() {
	[ -e "$SCRIPTS/$1" ] || skip "not copied from the kernel source; qemu-test/check does it"
	[ "$1" != rxe_sent_rcvd_bytes.sh ] || skip "it needs the RDMA connection manager, which is not there yet"
	[ "$FERROCE_DRIVER" = rxe ] || make_shims
	bash "$SCRIPTS/$1"
}

ktap_name() { echo "the kernel's ${1#kernel_test }"; }

ktap_main "$@"

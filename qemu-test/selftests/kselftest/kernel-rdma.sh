#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology single --modules none
# The kernel's own selftests of rdma_rxe, run on ferroce. `qemu-test/check` copies
# them from the kernel source into build/kernel-selftests; commands of the same name
# in front of PATH turn what they say about rxe into ferroce.
#
# shellcheck disable=SC2016 # scripts within the script

CASE_TIMEOUT=300
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

SCRIPTS=$FERROCE_DIR/build/kernel-selftests/rdma

cases() {
	local name
	for name in ipv6 socket_with_netns netns_names test_NETDEV_UNREGISTER \
		sent_rcvd_bytes rping_between_netns; do
		echo "kernel_test rxe_$name.sh"
	done
}

# shim NAME BODY: a command NAME before all others; $real is the one it stands for.
shim() {
	printf '#!/bin/bash\nreal=%s\n%s\n' "$(command -v "$1")" "$2" >"bin/$1"
	chmod +x "bin/$1"
}

make_shims() {
	modprobe -a ib_uverbs rdma_ucm udp_tunnel ip6_udp_tunnel tun dummy veth
	shim rdma 'for word; do [ "$word" != rxe ] || word=ferroce; words+=("$word"); done; exec $real "${words[@]}"'
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
	mkdir bin
	# a second until the server listens is too little for an emulated machine
	shim sleep 'exec $real $(("${1%.*}" * 5))'
	if [ "$FERROCE_DRIVER" = rxe ]; then
		PATH=$PWD/bin:$PATH
	else
		make_shims
	fi
	bash "$SCRIPTS/$1"
	# whatever asks for rxe by name gets it loaded
	[ "$FERROCE_DRIVER" = rxe ] || not grep '^rdma_rxe ' /proc/modules
}

ktap_name() { echo "the kernel's ${1#kernel_test }"; }

ktap_main "$@"

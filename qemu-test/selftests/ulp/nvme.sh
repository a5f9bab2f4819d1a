#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology single
# NVMe over fabrics: the kernel's target and host, on one device and its own address.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"
# shellcheck source=qemu-test/selftests/lib/nvme.sh
. "$here/../lib/nvme.sh"

MIB=48

before_all() {
	host_up
	target_up 10.0.0.1 "$MIB"
}

after_all() {
	host_disconnect
	target_down
	rmmod nvme_rdma nvmet_rdma
	unload_driver
}

# quick SECONDS CMD…: CMD, which may be a function, must succeed within that time.
quick() {
	local began=$SECONDS limit=$1
	shift
	"$@"
	[ $((SECONDS - began)) -le "$limit" ] || fail "took $((SECONDS - began)) s: $*"
}

test_data_comes_back_as_it_was_written() {
	local disk
	disk=$(host_connect 10.0.0.1 nr_io_queues=2)
	head -c 8M /dev/urandom >data
	dd if=data of="$disk" bs=1M oflag=direct
	dd if="$disk" of=back bs=256k count=32 iflag=direct
	cmp data back
	# odd sizes and offsets, in units of the block size
	dd if=data of="$disk" bs=4k count=77 seek=1233 oflag=direct
	dd if="$disk" of=back bs=4k count=77 skip=1233 iflag=direct
	cmp -n $((77 * 4096)) data back
	host_disconnect
}

test_fio_verifies_what_it_wrote() {
	local disk
	disk=$(host_connect 10.0.0.1 nr_io_queues=2)
	timeout $((100 * FERROCE_SLOWER)) fio --name=v --filename="$disk" --rw=randwrite --bsrange=4k-128k --size=6M \
		--verify=crc32c --verify_fatal=1 --direct=1 --ioengine=libaio --iodepth=8 --verify_state_save=0
	host_disconnect
}

test_a_file_system_on_it() {
	local disk
	disk=$(host_connect 10.0.0.1 nr_io_queues=1)
	mkfs.ext4 -q -F "$disk"
	mkdir mnt
	mount "$disk" mnt
	cp -r /usr/share/doc/rdma-core mnt/
	(cd mnt && find . -type f -exec sha256sum {} +) >sums
	umount mnt
	host_disconnect
	disk=$(host_connect 10.0.0.1 nr_io_queues=1)
	fsck.ext4 -f -n "$disk"
	mount -o ro "$disk" mnt
	(cd mnt && sha256sum --quiet -c) <sums
	umount mnt
	host_disconnect
}

test_R4_connected_again_and_again() {
	local _
	for _ in 1 2 3 4; do
		host_connect 10.0.0.1 nr_io_queues=1
		host_disconnect
	done
}

test_over_IPv6() {
	local disk
	target_down
	target_up fd00::1 "$MIB"
	disk=$(host_connect fd00::1 nr_io_queues=1)
	head -c 1M /dev/urandom >data
	dd if=data of="$disk" bs=64k oflag=direct
	dd if="$disk" bs=64k count=16 iflag=direct | cmp - data
	host_disconnect
	target_down
	target_up 10.0.0.1 "$MIB"
}

test_a_target_with_a_shared_receive_queue() {
	local disk
	host_disconnect
	target_down
	rmmod nvmet_rdma
	modprobe nvmet_rdma use_srq=1
	target_up 10.0.0.1 "$MIB"
	disk=$(host_connect 10.0.0.1 nr_io_queues=2)
	head -c 4M /dev/urandom >data
	dd if=data of="$disk" bs=128k oflag=direct
	dd if="$disk" bs=32k count=128 iflag=direct | cmp - data
	host_disconnect
}

# busy DISK: reads from it for as long as it goes.
busy() {
	timeout $((90 * FERROCE_SLOWER)) dd if="$1" of=/dev/null bs=64k count=100000 iflag=direct >/dev/null 2>&1 &
	sleep 2
}

test_R18_the_device_goes_while_it_is_busy() {
	local disk
	disk=$(host_connect 10.0.0.1 nr_io_queues=2,ctrl_loss_tmo=1)
	busy "$disk"
	quick 60 rdma link del fa
	device_gone fa
	quick 60 host_disconnect
	target_down
	host_device
	target_up 10.0.0.1 "$MIB"
	host_connect 10.0.0.1 nr_io_queues=1
	host_disconnect
}

test_R17_the_module_goes_while_it_is_busy() {
	local disk
	disk=$(host_connect 10.0.0.1 nr_io_queues=2,ctrl_loss_tmo=1)
	busy "$disk"
	quick 60 unload_driver
	not loaded
	host_disconnect
	target_down
	load_driver
	host_device
	target_up 10.0.0.1 "$MIB"
	host_connect 10.0.0.1 nr_io_queues=1
	host_disconnect
}

ktap_main "$@"

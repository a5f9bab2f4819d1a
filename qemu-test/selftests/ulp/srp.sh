#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology single
# SCSI RDMA protocol: the kernel's target and initiator, on one device and its own
# address. They poll by hand and in softirq, and register memory by work requests. (The
# target's shared receive queue is left alone: Linux 7.3 warns about a cache of its own
# when such a session ends. nvme.sh has one.)

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

TARGET=/sys/kernel/config/target
PORT=5555

before_all() {
	host_up
	modprobe -a target_core_mod target_core_file ib_srpt ib_srp sd_mod
	[ -d "$TARGET" ] || mount -t configfs none /sys/kernel/config
}

after_all() {
	log_out
	target_down
	rmmod ib_srp ib_srpt
	rdma link del fa
	unload_driver
}

# The name of the target's port: the lower half of the first GID.
port_name() { cut -d: -f5-8 /sys/class/infiniband/fa/ports/1/gids/0; }

target_up() {
	local name tpg
	log_out
	target_down
	name=$(port_name)
	tpg=$TARGET/srpt/$name/$name
	truncate -s 32M /tmp/srp.img
	mkdir -p "$TARGET/core/fileio_0/disk"
	echo "fd_dev_name=/tmp/srp.img,fd_dev_size=$((32 << 20)),fd_buffered_io=1" >"$TARGET/core/fileio_0/disk/control"
	echo 1 >"$TARGET/core/fileio_0/disk/enable"
	mkdir -p "$tpg"
	echo "$PORT" >"$TARGET/srpt/discovery_auth/rdma_cm_port"
	mkdir -p "$tpg/lun/lun_0"
	ln -s "$TARGET/core/fileio_0/disk" "$tpg/lun/lun_0/disk"
	mkdir -p "$tpg/acls/10.0.0.1/lun_0"
	ln -s "$tpg/lun/lun_0" "$tpg/acls/10.0.0.1/lun_0/disk"
	echo 1 >"$tpg/enable"
}

target_down() {
	local name tpg
	name=$(port_name)
	tpg=$TARGET/srpt/$name/$name
	[ -d "$tpg" ] || return 0
	echo 0 >"$tpg/enable"
	echo 0 >"$TARGET/srpt/discovery_auth/rdma_cm_port"
	rm -f "$tpg/acls/10.0.0.1/lun_0/disk" "$tpg/lun/lun_0/disk"
	rmdir "$tpg/acls/10.0.0.1/lun_0" "$tpg/acls/10.0.0.1"
	rmdir "$tpg/lun/lun_0" "$tpg" "$TARGET/srpt/$name"
	rmdir "$TARGET/core/fileio_0/disk" "$TARGET/core/fileio_0"
	rm -f /tmp/srp.img
}

# disk: the SCSI disk that is there, if one is.
disk() {
	local path
	for path in /sys/class/scsi_disk/*/device/block/sd*; do
		[ -d "$path" ] || return 1
		echo "/dev/${path##*/}"
		return
	done
}

# log_in: prints the disk.
log_in() {
	local guid
	guid=$(cat /sys/module/ib_srpt/parameters/srpt_service_guid)
	echo "id_ext=${guid#0x},ioc_guid=${guid#0x},dest=10.0.0.1:$PORT" >/sys/class/infiniband_srp/srp-fa-1/add_target
	within 30 disk >/dev/null
	within 10 [ -b "$(disk)" ]
	disk
}

log_out() {
	local port
	for port in /sys/class/srp_remote_ports/*/delete; do
		[ ! -e "$port" ] || echo 1 >"$port"
	done
	within 30 no_disk
}
no_disk() { [ -z "$(disk)" ]; }

test_data_comes_back_as_it_was_written() {
	local disk
	target_up
	disk=$(log_in)
	head -c 8M /dev/urandom >data
	dd if=data of="$disk" bs=1M oflag=direct
	dd if="$disk" of=back bs=128k count=64 iflag=direct
	cmp data back
	dd if=data of="$disk" bs=512 count=77 seek=1233 oflag=direct
	dd if="$disk" of=back bs=512 count=77 skip=1233 iflag=direct
	cmp -n $((77 * 512)) data back
	timeout $((60 * FERROCE_SLOWER)) fio --name=v --filename="$disk" --rw=randwrite --bsrange=512-64k --size=3M \
		--verify=crc32c --verify_fatal=1 --direct=1 --ioengine=libaio --iodepth=8 --verify_state_save=0
	log_out
	target_down
}

test_R18_the_device_goes_while_it_is_busy() {
	local disk began
	target_up
	disk=$(log_in)
	timeout $((60 * FERROCE_SLOWER)) dd if="$disk" of=/dev/null bs=64k count=100000 iflag=direct >/dev/null 2>&1 &
	sleep 2
	began=$SECONDS
	rdma link del fa
	[ $((SECONDS - began)) -le 60 ]
	device_gone fa
	host_device
}

ktap_main "$@"

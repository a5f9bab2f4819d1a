# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# An NVMe target in the kernel and a host that connects to it, by configfs and
# /dev/nvme-fabrics alone.

NVMET=/sys/kernel/config/nvmet
NQN=nqn.2024-01.org.example:ferroce

# target_up ADDRESS MIB: offers a file of that size at ADDRESS, port 4420.
target_up() {
	local subsystem=$NVMET/subsystems/$NQN port=$NVMET/ports/1 file=/tmp/nvme.img
	modprobe -a nvmet nvmet_rdma
	[ -d "$NVMET" ] || mount -t configfs none /sys/kernel/config
	truncate -s "$2M" "$file"
	mkdir "$subsystem"
	echo 1 >"$subsystem/attr_allow_any_host"
	mkdir "$subsystem/namespaces/1"
	echo -n "$file" >"$subsystem/namespaces/1/device_path"
	echo 1 >"$subsystem/namespaces/1/buffered_io"
	echo 1 >"$subsystem/namespaces/1/enable"
	mkdir "$port"
	echo ipv4 >"$port/addr_adrfam"
	[ "${1#*:}" = "$1" ] || echo ipv6 >"$port/addr_adrfam"
	echo rdma >"$port/addr_trtype"
	echo "$1" >"$port/addr_traddr"
	echo 4420 >"$port/addr_trsvcid"
	ln -s "$subsystem" "$port/subsystems/$NQN"
}

target_down() {
	local subsystem=$NVMET/subsystems/$NQN port=$NVMET/ports/1
	rm -f "$port/subsystems/$NQN"
	rmdir "$port" || true
	echo 0 >"$subsystem/namespaces/1/enable" || true
	rmdir "$subsystem/namespaces/1" "$subsystem" || true
	rm -f /tmp/nvme.img
}

# host_connect ADDRESS [OPTIONS]: prints the block device.
host_connect() {
	local address=$1 said instance
	host_disconnect
	modprobe -a nvme_fabrics nvme_rdma
	exec 9<>/dev/nvme-fabrics
	echo -n "transport=rdma,traddr=$address,trsvcid=4420,nqn=$NQN${2:+,$2}" >&9
	read -r said <&9
	exec 9>&-
	instance=$(sed -nE 's/.*instance=([0-9]+).*/\1/p' <<<"$said")
	[ -n "$instance" ] || { echo "connect: '$said'" >&2; return 1; }
	within 20 disk_there "$instance" >&2
	block_of "$instance"
}

disk_there() {
	local disk
	disk=$(block_of "$1") && [ -b "$disk" ]
}

# block_of INSTANCE: the disk of that controller.
block_of() {
	local dir
	for dir in "/sys/class/nvme/nvme$1"/nvme*n1; do
		[ -d "$dir" ] || return 1
		# with native multipath the controller's own disk is hidden behind nvmeXn1
		basename "$dir" | sed -E 's,^nvme([0-9]+)(c[0-9]+)?n1$,/dev/nvme\1n1,'
		return
	done
}

host_disconnect() {
	local control
	for control in /sys/class/nvme/nvme*/delete_controller; do
		[ ! -e "$control" ] || echo 1 >"$control"
	done
}

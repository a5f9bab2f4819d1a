#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --modules none
# The module as a thing of the kernel: loads, unloads, says who it is, leaks nothing.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

after_all() { pair_down; }

file() { if [ "$MODULE" = ferroce ]; then echo "$FERROCE_DIR/build/ferroce.ko"; else echo "$MODULE"; fi; }

test_modinfo_names_licence_alias_and_kernel() {
	modinfo "$(file)" | tee info
	grep -qE '^license:\s+(Dual BSD/)?GPL' info
	grep -qE "^alias:\s+rdma-link-$FERROCE_DRIVER\$" info
	[ "$(modinfo -F vermagic "$(file)" | cut -d' ' -f1)" = "$(uname -r)" ]
}

test_the_kernel_is_not_tainted_beyond_an_unsigned_module() {
	load_driver
	# 4096 out of tree, 8192 unsigned: nothing else
	[ $(($(cat /proc/sys/kernel/tainted) & ~(4096 | 8192))) = 0 ]
}

test_loading_it_twice_is_refused() {
	load_driver
	[ "$MODULE" = ferroce ] || skip "modprobe of a loaded module succeeds"
	expect_failure 'exists' insmod "$(file)"
	loaded
}

test_a_device_does_not_hold_the_module() {
	pair_up
	rmmod "$MODULE"
	not loaded
	device_gone fa
}

# A kernel that keeps what was freed, to find who uses it, has kmemleak instead.
weighs_memory() {
	[ ! -e /sys/kernel/debug/kmemleak ] || skip "this kernel keeps freed memory; kmemleak looks for leaks"
}

# Kilobytes of kernel memory that nobody can reclaim.
kernel_memory() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	# freed by RCU and by workers
	sleep 2
	awk '/^(SUnreclaim|VmallocUsed|Percpu):/ { sum += $2 } END { print sum }' /proc/meminfo
}

round() {
	pair_up
	between v4 ibv_rc_pingpong -n 20 >/dev/null
	pair_down
}

test_twelve_lives_leave_no_memory_behind() {
	local before after
	weighs_memory
	for _ in 1 2 3; do round; done
	before=$(kernel_memory)
	for _ in {1..12}; do round; done
	after=$(kernel_memory)
	echo "kernel memory before: $before kB, after: $after kB"
	[ $((after - before)) -lt 2048 ]
}

test_many_registrations_leave_no_memory_behind() {
	local before after
	weighs_memory
	pair_up
	registrations 20
	before=$(kernel_memory)
	registrations 300
	after=$(kernel_memory)
	echo "kernel memory before: $before kB, after: $after kB"
	[ $((after - before)) -lt 2048 ]
}

# registrations N: N times a context with a region of 1 MiB, a queue and a queue pair.
registrations() {
	python3 - "$1" <<-END
		import sys
		sys.path.insert(0, "$here/../lib")
		from rc import Buffer, Endpoint
		for _ in range(int(sys.argv[1])):
		    end = Endpoint("fa", "10.0.0.1")
		    Buffer(end.pd, 1 << 20, offset=1)
		    end.close()
	END
}

ktap_main "$@"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --modules none --append ipv6.disable=1
# R30 A kernel without IPv6: the module loads, IPv4 works.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"

before_all() { grep -qw ipv6.disable=1 /proc/cmdline; }
after_all() { pair_down; }

test_R30_the_module_loads_without_IPv6() { load_driver; }

test_R29_devices_have_IPv4_GIDs() {
	pair_up
	gid_of a 10.0.0.1
}

test_ping_pong_over_IPv4() { pair_up; between v4 ibv_rc_pingpong -c -n 50; }

test_the_module_unloads() { pair_down; not loaded; }

ktap_main "$@"

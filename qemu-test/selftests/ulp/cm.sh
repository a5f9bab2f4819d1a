#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
# The tools of librdmacm, between two hosts in one guest.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"
# shellcheck source=qemu-test/selftests/lib/cm.sh
. "$here/../lib/cm.sh"

ktap_main "$@"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --netns exclusive
# The same as cm.sh where a device is seen in its own namespace only. rdma_rxe cannot do it.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=qemu-test/selftests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu-test/selftests/lib/driver.sh
. "$here/../lib/driver.sh"
# shellcheck source=qemu-test/selftests/lib/cm.sh
. "$here/../lib/cm.sh"

ktap_main "$@"

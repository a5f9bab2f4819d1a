// SPDX-License-Identifier: GPL-2.0
/*
 * Macros of the kernel's headers that Rust cannot reach, one line each.
 */
#include "bindings_helper.h"

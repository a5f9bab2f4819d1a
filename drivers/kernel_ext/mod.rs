// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions that the `kernel` crate lacks.

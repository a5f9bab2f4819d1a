// SPDX-License-Identifier: GPL-2.0

//! A value for each CPU, so that CPUs which write at the same time share no cache line.

use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    prelude::*,
};

/// A cache line of its own.
#[repr(align(64))]
struct Line<T>(T);

/// One `T` for each possible CPU. Nothing keeps the caller on its CPU, so `T` must cope
/// with access from several, which is rare.
pub(crate) struct PerCpu<T: Sync>(KVVec<Line<T>>);

impl<T: Sync> PerCpu<T> {
    /// A `make()` for each CPU. Fails with `ENOMEM`.
    pub(crate) fn new(make: impl Fn() -> T) -> Result<Self> {
        let mut all = KVVec::with_capacity(nr_cpu_ids() as usize, GFP_KERNEL)?;
        for _ in 0..nr_cpu_ids() {
            all.push(Line(make()), GFP_KERNEL)?;
        }
        Ok(Self(all))
    }

    /// That of the present CPU, from any context.
    pub(crate) fn here(&self) -> Option<&T> {
        let cpu = CpuId::current().as_u32() as usize;
        self.0.get(cpu).map(|line| &line.0)
    }

    /// Those of all CPUs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
    }
}

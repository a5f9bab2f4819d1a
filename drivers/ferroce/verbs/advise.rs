// SPDX-License-Identifier: GPL-2.0

//! Advice about memory on demand (`ibv_advise_mr(3)`): pages are fetched before a work
//! request wants them.

use super::{
    backing::Backing,
    mr,
    Pd, //
};
use crate::{
    engine::MemError,
    kernel_ext::{
        ib::Advice,
        implicit::Implicit,
        odp::Odp, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};

enum OnDemand {
    Some(Arc<Odp>),
    All(Arc<Implicit>),
}

/// The memory on demand under `lkey`, and the place in it of `addr..addr + len`.
fn find(pd: &Pd, lkey: u32, addr: u64, len: u64, write: bool) -> Result<(OnDemand, usize)> {
    let needed = if write { mr::LOCAL_WRITE } else { 0 };
    let rcu = rcu::read_lock();
    let mr = pd.dev.mrs.get(lkey >> 8, &rcu);
    let mr = mr.filter(|mr| mr.key() == lkey).ok_or(EINVAL)?;
    let start = mr
        .locate(pd.id, addr, len, needed)
        .map_err(|why| match why {
            MemError::Access => EPERM,
            MemError::Range => EFAULT,
            _ => EINVAL,
        })?;
    match &mr.backing {
        Backing::OnDemand(odp) => Ok((OnDemand::Some(odp.clone()), start)),
        Backing::Implicit(all) => Ok((OnDemand::All(all.clone()), start)),
        _ => Err(EINVAL),
    }
}

/// Follows `advice` for `addr..addr + len` under `lkey`.
///
/// Fails with `EINVAL` for a key that is not of this protection domain or not of memory on
/// demand, `EPERM` for writing where it is not allowed, `EFAULT` outside of the region and,
/// if it is to be done now, where there is no memory.
pub(crate) fn advise(pd: &Pd, advice: Advice, lkey: u32, addr: u64, len: u64) -> Result {
    let (memory, start) = find(pd, lkey, addr, len, advice.write)?;
    let len = usize::try_from(len)?;
    let Advice { write, fault, now } = advice;
    match (memory, now || !fault) {
        (OnDemand::Some(odp), true) => odp.fetch_now(start, len, write, fault)?,
        (OnDemand::Some(odp), false) => Odp::prefetch(&odp, start, len, write),
        (OnDemand::All(all), true) => all.fetch_now(start, len, write, fault)?,
        (OnDemand::All(all), false) => Implicit::prefetch(&all, start, len, write),
    }
    Ok(())
}

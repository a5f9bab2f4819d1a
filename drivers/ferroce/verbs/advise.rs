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

/// The memory on demand under `lkey`, and the place in it of `addr..addr + len`.
fn find(pd: &Pd, lkey: u32, addr: u64, len: u64, write: bool) -> Result<(Arc<Odp>, usize)> {
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
        Backing::OnDemand(odp) => Ok((odp.clone(), start)),
        _ => Err(EINVAL),
    }
}

/// Follows `advice` for `addr..addr + len` under `lkey`.
///
/// Fails with `EINVAL` for a key that is not of this protection domain or not of memory on
/// demand, `EPERM` for writing where it is not allowed, `EFAULT` outside of the region and,
/// if it is to be done now, where there is no memory.
pub(crate) fn advise(pd: &Pd, advice: Advice, lkey: u32, addr: u64, len: u64) -> Result {
    let (odp, start) = find(pd, lkey, addr, len, advice.write)?;
    let len = usize::try_from(len)?;
    if advice.now || !advice.fault {
        odp.fetch_now(start, len, advice.write, advice.fault)
    } else {
        odp.prefetch(start, len, advice.write);
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Making objects and destroying them.
//!
//! Each is entered into its table before the answer is copied out, and taken out again
//! when that fails: a process does not keep what it was not told of.

use super::context::{
    Context,
    CqEntry,
    MrEntry,
    Objects,
    QpEntry,
    RingKind,
    Used, //
};
use crate::{
    bindings,
    kernel_ext::{
        ib::MrRange,
        uapi::{
            Argument,
            Plain, //
        },
        wait::new_wait_queue, //
    },
    verbs::{
        cq,
        create::{
            Kind,
            Parts,
            QpInit, //
        },
        device::limits,
        qp,
        Cq,
        Device,
        Mr,
        Qp, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The access flags there are.
pub(super) const ACCESS: u32 = bindings::FERROCE_ACCESS_LOCAL_WRITE
    | bindings::FERROCE_ACCESS_REMOTE_WRITE
    | bindings::FERROCE_ACCESS_REMOTE_READ;

/// Says that an object is in use.
fn unused<T>(used: &Used<T>) -> Result {
    if used.users == 0 {
        Ok(())
    } else {
        Err(EBUSY)
    }
}

/// Copies an answer out; when that fails, undoes what was made.
fn tell<T: Plain>(arg: Argument, answer: &T, undo: impl FnOnce() -> Result) -> Result {
    arg.write(answer).or_else(|e| undo().and(Err(e)))
}

/// FERROCE_IOC_ALLOC_PD
pub(super) fn alloc_pd(context: &Context, arg: Argument) -> Result {
    let mut answer: bindings::ferroce_alloc_pd = arg.read()?;
    if answer.pad != 0 {
        return Err(EINVAL);
    }
    context.with(|objects| {
        let object = Device::alloc_pd(objects.device.as_arc_borrow(), false)?;
        answer.handle = objects.pds.reserve()?;
        objects.pds.fill(answer.handle, Used { object, users: 0 });
        tell(arg, &answer, || destroy_pd(objects, answer.handle))
    })
}

fn destroy_pd(objects: &mut Objects, handle: u32) -> Result {
    objects.pds.remove(handle, unused).map(drop)
}

/// FERROCE_IOC_REG_MR
pub(super) fn reg_mr(context: &Context, arg: Argument) -> Result {
    let mut answer: bindings::ferroce_reg_mr = arg.read()?;
    let remote_only = answer.access & bindings::FERROCE_ACCESS_REMOTE_WRITE != 0
        && answer.access & bindings::FERROCE_ACCESS_LOCAL_WRITE == 0;
    if answer.pad != 0 || answer.access & !ACCESS != 0 || remote_only || answer.length == 0 {
        return Err(EINVAL);
    }
    context.with(|objects| {
        let pd = objects.pds.get(answer.pd)?;
        let handle = objects.mrs.reserve()?;
        let range = MrRange {
            start: answer.addr,
            len: answer.length,
            iova: answer.addr,
        };
        let made = Mr::register(&pd.object, range, answer.access);
        let mr = made.inspect_err(|_| objects.mrs.release(handle))?;
        answer.handle = handle;
        answer.lkey = mr.key();
        answer.rkey = mr.key();
        pd.users += 1;
        objects.mrs.fill(handle, MrEntry { mr, pd: answer.pd });
        tell(arg, &answer, || destroy_mr(objects, handle))
    })
}

fn destroy_mr(objects: &mut Objects, handle: u32) -> Result {
    let entry = objects.mrs.remove(handle, |entry| entry.mr.deregister())?;
    objects.pds.get(entry.pd)?.users -= 1;
    Ok(())
}

/// FERROCE_IOC_CREATE_CQ
pub(super) fn create_cq(context: &Context, arg: Argument) -> Result {
    let mut answer: bindings::ferroce_create_cq = arg.read()?;
    if !(1..=limits::CQE).contains(&answer.entries) {
        return Err(EINVAL);
    }
    context.with(|objects| {
        let waiters = Arc::pin_init(new_wait_queue!("ferroce CQ"), GFP_KERNEL)?;
        let cq = Cq::new(answer.entries, cq::Sink::Waiters(waiters.clone()))?;
        let handle = objects.cqs.reserve()?;
        let shown = context.offer(RingKind::Cq, handle, &cq.ring());
        answer.ring = shown.inspect_err(|_| objects.cqs.release(handle))?;
        answer.handle = handle;
        answer.entries = cq.ring().capacity();
        objects.cqs.fill(
            handle,
            Used {
                object: CqEntry { cq, waiters },
                users: 0,
            },
        );
        tell(arg, &answer, || destroy_cq(context, objects, handle))
    })
}

fn destroy_cq(context: &Context, objects: &mut Objects, handle: u32) -> Result {
    let entry = objects.cqs.remove(handle, unused)?;
    context.withdraw(RingKind::Cq, handle);
    entry.object.close();
    Ok(())
}

/// FERROCE_IOC_CREATE_QP
pub(super) fn create_qp(context: &Context, arg: Argument) -> Result {
    let mut answer: bindings::ferroce_create_qp = arg.read()?;
    if answer.type_ != bindings::ferroce_qp_type_FERROCE_QP_RC
        || answer.flags & !bindings::FERROCE_QP_SIGNAL_ALL != 0
    {
        return Err(EINVAL);
    }
    let init = QpInit {
        kind: Kind::Rc,
        send_wr: answer.max_send_wr,
        recv_wr: answer.max_recv_wr,
        send_sge: answer.max_send_sge,
        recv_sge: answer.max_recv_sge,
        inline: answer.max_inline_data,
        signal_all: answer.flags & bindings::FERROCE_QP_SIGNAL_ALL != 0,
        kernel: false,
    };
    context.with(|objects| {
        let pd = objects.pds.get(answer.pd)?.object.clone();
        let send_cq = objects.cqs.get(answer.send_cq)?.object.cq.clone();
        let recv_cq = objects.cqs.get(answer.recv_cq)?.object.cq.clone();
        let parts = Parts {
            dev: &pd.dev,
            pd: Some(&pd),
            send_cq: Some(send_cq),
            recv_cq: Some(recv_cq),
            srq: None,
            xrcd: None,
        };
        let qp = Qp::new(parts, init, qp::Sink::Nobody)?;
        let handle = match objects.qps.reserve() {
            Ok(handle) => handle,
            Err(e) => {
                qp.destroy();
                return Err(e);
            }
        };
        let shown = enter_qp(context, objects, handle, qp, &mut answer);
        shown
            .and_then(|()| arg.write(&answer))
            .or_else(|e| destroy_qp(context, objects, handle).and(Err(e)))
    })
}

/// Puts a queue pair into the table and says what it is.
fn enter_qp(
    context: &Context,
    objects: &mut Objects,
    handle: u32,
    qp: Arc<Qp>,
    answer: &mut bindings::ferroce_create_qp,
) -> Result {
    let cqs = [answer.send_cq, answer.recv_cq];
    objects.pds.get(answer.pd)?.users += 1;
    for cq in cqs {
        objects.cqs.get(cq)?.users += 1;
    }
    objects.qps.fill(
        handle,
        QpEntry {
            qp: qp.clone(),
            pd: answer.pd,
            cqs,
        },
    );
    answer.handle = handle;
    answer.qpn = qp.qpn;
    answer.max_send_wr = qp.caps.send_wr;
    answer.max_recv_wr = qp.caps.recv_wr;
    answer.max_send_sge = qp.caps.send_sge;
    answer.max_recv_sge = qp.caps.recv_sge;
    answer.max_inline_data = qp.caps.inline;
    let (sq, rq) = qp.rings();
    answer.sq = context.offer(RingKind::Sq, handle, sq.ok_or(EINVAL)?)?;
    answer.rq = context.offer(RingKind::Rq, handle, rq.ok_or(EINVAL)?)?;
    Ok(())
}

fn destroy_qp(context: &Context, objects: &mut Objects, handle: u32) -> Result {
    let entry = objects.qps.remove(handle, |_| Ok(()))?;
    context.withdraw(RingKind::Sq, handle);
    context.withdraw(RingKind::Rq, handle);
    entry.qp.destroy();
    objects.pds.get(entry.pd)?.users -= 1;
    for cq in entry.cqs {
        objects.cqs.get(cq)?.users -= 1;
    }
    Ok(())
}

/// FERROCE_IOC_DESTROY
pub(super) fn destroy(context: &Context, arg: Argument) -> Result {
    let arg: bindings::ferroce_destroy = arg.read()?;
    context.with(|objects| match arg.kind {
        bindings::ferroce_object_FERROCE_OBJECT_PD => destroy_pd(objects, arg.handle),
        bindings::ferroce_object_FERROCE_OBJECT_MR => destroy_mr(objects, arg.handle),
        bindings::ferroce_object_FERROCE_OBJECT_CQ => destroy_cq(context, objects, arg.handle),
        bindings::ferroce_object_FERROCE_OBJECT_QP => destroy_qp(context, objects, arg.handle),
        _ => Err(EINVAL),
    })
}

// SPDX-License-Identifier: GPL-2.0

//! A wait queue: tasks sleep until a condition holds that any context may bring
//! about, a softirq too. Unlike `CondVar` it needs no lock around the condition.

use super::timer;
use crate::bindings;
use kernel::{
    prelude::*,
    sync::LockClassKey,
    types::Opaque, //
};

/// Tasks that wait.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: the C wait queue locks itself.
unsafe impl Send for WaitQueue {}
// SAFETY: as above.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// A queue without a task in it.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `__init_waitqueue_head` initialises the memory that it is given.
            head <- Opaque::ffi_init(|head| unsafe {
                bindings::__init_waitqueue_head(head, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    /// Has every task look at its condition again. Any context.
    pub(crate) fn wake_all(&self) {
        let normal = bindings::TASK_NORMAL;
        // SAFETY: the queue is initialised.
        unsafe { bindings::__wake_up(self.head.get(), normal, 0, core::ptr::null_mut()) };
    }

    /// Sleeps until `condition` holds or the monotonic clock says `deadline` (ns; `None`:
    /// for ever). Says whether it holds. `EINTR` if a signal comes first.
    pub(crate) fn wait_until(
        &self,
        deadline: Option<u64>,
        mut condition: impl FnMut() -> bool,
    ) -> Result<bool> {
        let mut entry = bindings::wait_queue_entry::default();
        // SAFETY: `entry` is ours and stays where it is; `finish_wait` takes it out of the
        // queue before this function returns.
        unsafe { bindings::init_wait_entry(&mut entry, 0) };
        let result = loop {
            let state = bindings::TASK_INTERRUPTIBLE as c_int;
            // SAFETY: as above.
            let interrupted =
                unsafe { bindings::prepare_to_wait_event(self.head.get(), &mut entry, state) };
            if condition() {
                break Ok(true);
            }
            if interrupted != 0 {
                break Err(EINTR);
            }
            if !sleep(deadline) {
                break Ok(condition());
            }
        };
        // SAFETY: as above.
        unsafe { bindings::finish_wait(self.head.get(), &mut entry) };
        result
    }
}

/// Sleeps in the state that was set before; false if the deadline has come.
fn sleep(deadline: Option<u64>) -> bool {
    if deadline.is_some_and(|at| at <= timer::now()) {
        return false;
    }
    let mut at = deadline.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
    let expires = at
        .as_mut()
        .map_or(core::ptr::null_mut(), core::ptr::from_mut);
    // SAFETY: the task may sleep here; null means for ever.
    unsafe {
        bindings::schedule_hrtimeout_range(expires, 0, bindings::hrtimer_mode_HRTIMER_MODE_ABS);
    }
    true
}

/// Initialises a [`WaitQueue`] with a lock class of its own.
macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::kernel_ext::wait::WaitQueue::new(
            kernel::c_str!($name),
            kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_wait_queue;

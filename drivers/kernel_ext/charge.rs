// SPDX-License-Identifier: GPL-2.0

//! Whom the kernel charges for memory: what a work item allocates for a process belongs to
//! the memory cgroup of that process, not to the kernel's own.

use crate::bindings;
use kernel::mm::MmWithUser;

/// While this is there, what this thread allocates with `GFP_KERNEL_ACCOUNT` is charged to a
/// process. Not `Send`.
pub(super) struct Charged {
    group: *mut bindings::mem_cgroup,
    before: *mut bindings::mem_cgroup,
}

impl Charged {
    /// Charges the process that `mm` is of.
    pub(super) fn to(mm: &MmWithUser) -> Self {
        // SAFETY: the memory has users, and the reference on its group is kept until `drop`.
        unsafe {
            let group = bindings::ferroce_memcg_of(mm.as_raw().cast());
            let before = bindings::ferroce_memcg_charge(group);
            Self { group, before }
        }
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and what was before is what the thread had.
        unsafe {
            bindings::ferroce_memcg_charge(self.before);
            bindings::ferroce_memcg_put(self.group);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The second door: `/dev/ferroce`, whose ABI is uapi/ferroce.h.
//!
//! An open file is a [`Context`]. Each ioctl copies its argument in once, checks it,
//! and translates it into [`crate::verbs`]; the rings are mapped and then shared
//! with user space without a system call. Everything here runs in process context.

mod context;
mod devices;
mod objects;
mod registry;
mod table;
mod work;

use self::context::Context;
use crate::{
    bindings,
    kernel_ext::uapi::{
        without_size,
        Argument, //
    }, //
};
use kernel::{
    fs::File,
    miscdevice::{
        MiscDevice,
        MiscDeviceOptions,
        MiscDeviceRegistration, //
    },
    mm::virt::VmaNew,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

pub(crate) use self::registry::device_gone;

/// The device file, there as long as this lives.
#[pin_data(PinnedDrop)]
pub(crate) struct Chardev {
    #[pin]
    registration: MiscDeviceRegistration<Context>,
}

impl Chardev {
    /// Makes the device file. Called once, by the module's init.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _: { registry::open()? },
            registration <- MiscDeviceRegistration::register(MiscDeviceOptions { name: c"ferroce" }),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Chardev {
    fn drop(self: Pin<&mut Self>) {
        registry::close();
    }
}

#[vtable]
impl MiscDevice for Context {
    type Ptr = Arc<Self>;

    fn open(_file: &File, _misc: &MiscDeviceRegistration<Self>) -> Result<Arc<Self>> {
        Context::new()
    }

    fn release(context: Arc<Self>, _file: &File) {
        context.close();
    }

    fn mmap(context: ArcBorrow<'_, Self>, _file: &File, vma: &VmaNew) -> Result {
        context.map(vma)
    }

    fn ioctl(context: ArcBorrow<'_, Self>, _file: &File, cmd: u32, at: usize) -> Result<isize> {
        dispatch(context, cmd, Argument::new(cmd, at)).map(|()| 0)
    }
}

fn dispatch(context: ArcBorrow<'_, Context>, cmd: u32, arg: Argument) -> Result {
    const QUERY: u32 = without_size(bindings::FERROCE_CMD_QUERY);
    const LIST_DEVICES: u32 = without_size(bindings::FERROCE_CMD_LIST_DEVICES);
    const GET_DEVICE: u32 = without_size(bindings::FERROCE_CMD_GET_DEVICE);
    const BIND: u32 = without_size(bindings::FERROCE_CMD_BIND);
    const ALLOC_PD: u32 = without_size(bindings::FERROCE_CMD_ALLOC_PD);
    const REG_MR: u32 = without_size(bindings::FERROCE_CMD_REG_MR);
    const CREATE_CQ: u32 = without_size(bindings::FERROCE_CMD_CREATE_CQ);
    const CREATE_QP: u32 = without_size(bindings::FERROCE_CMD_CREATE_QP);
    const MODIFY_QP: u32 = without_size(bindings::FERROCE_CMD_MODIFY_QP);
    const DESTROY: u32 = without_size(bindings::FERROCE_CMD_DESTROY);
    const ENTER: u32 = without_size(bindings::FERROCE_CMD_ENTER);

    match without_size(cmd) {
        QUERY => devices::query(arg),
        LIST_DEVICES => devices::list(arg),
        GET_DEVICE => devices::get(arg),
        BIND => context::bind(context, arg),
        ALLOC_PD => objects::alloc_pd(&context, arg),
        REG_MR => objects::reg_mr(&context, arg),
        CREATE_CQ => objects::create_cq(&context, arg),
        CREATE_QP => objects::create_qp(&context, arg),
        MODIFY_QP => work::modify_qp(&context, arg),
        DESTROY => objects::destroy(&context, arg),
        ENTER => work::enter(&context, arg),
        _ => Err(ENOTTY),
    }
}

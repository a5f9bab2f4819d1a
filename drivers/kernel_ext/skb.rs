// SPDX-License-Identifier: GPL-2.0

//! Socket buffers: one that was received and is looked at, one that is built and sent.

use super::{
    netdev::NetDevice,
    route::Route,
    skb_pool::{
        Block,
        SkbPool, //
    },
};
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::rcu, //
};

const UDP_L4: u32 = bindings::SKB_GSO_UDP_L4 as u32;
const FRAGLIST: u32 = bindings::SKB_GSO_FRAGLIST as u32;
/// Sent, though the queue is congested.
const XMIT_CN: c_int = bindings::NET_XMIT_CN as c_int;

use bindings::sk_buff__bindgen_ty_4__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1 as ChecksumStart;

type Fields = bindings::sk_buff__bindgen_ty_4__bindgen_ty_1;

/// The second half of the C struct, which is in an anonymous group there.
///
/// # Safety
///
/// `skb` points to a buffer that nobody else changes while the result is used.
unsafe fn fields<'a>(skb: NonNull<bindings::sk_buff>) -> &'a mut Fields {
    // SAFETY: the caller says so; both views of the group have one layout.
    unsafe { (*skb.as_ptr()).__bindgen_anon_4.__bindgen_anon_1.as_mut() }
}

/// The record at the end of the buffer.
///
/// # Safety
///
/// As for [`fields`].
unsafe fn shared<'a>(skb: NonNull<bindings::sk_buff>) -> &'a mut bindings::skb_shared_info {
    // SAFETY: a buffer's `end` is where this record begins.
    unsafe {
        let skb = skb.as_ptr();
        &mut *(*skb).head.add((*skb).end as usize).cast()
    }
}

/// What a handler made of a packet.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not for us: go on as if we were not there.
    Pass,
    /// Taken; the buffer may be freed.
    Consumed,
}

/// Takes packets that arrive. Called in softirq under RCU.
pub(crate) trait Receive: Send + Sync {
    /// Looks at one packet.
    fn receive(&self, packet: Received<'_>) -> Verdict;
}

/// How a received buffer is to be cut.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Gso {
    /// It is one packet.
    None,
    /// UDP datagrams of this many payload bytes each, the last one shorter.
    Udp(usize),
    /// Something else.
    Other,
}

/// A received IP packet, with its network and transport headers located.
pub(crate) struct Received<'a> {
    skb: NonNull<bindings::sk_buff>,
    _borrow: PhantomData<&'a mut bindings::sk_buff>,
}

impl Received<'_> {
    /// Borrows a C `struct sk_buff`.
    ///
    /// # Safety
    ///
    /// `skb` is a valid, unshared buffer on its way up the IP stack, ours for `'a`.
    pub(super) unsafe fn from_raw(skb: *mut bindings::sk_buff) -> Self {
        Self {
            // SAFETY: the caller says that it is valid.
            skb: unsafe { NonNull::new_unchecked(skb) },
            _borrow: PhantomData,
        }
    }

    fn raw(&self) -> &bindings::sk_buff {
        // SAFETY: by the type's contract the buffer is ours.
        unsafe { self.skb.as_ref() }
    }

    /// The interface that it arrived on.
    pub(crate) fn device(&self) -> &NetDevice {
        // SAFETY: a buffer on its way up has a device, which RCU keeps meanwhile.
        unsafe {
            NetDevice::from_raw(
                self.raw()
                    .__bindgen_anon_1
                    .__bindgen_anon_1
                    .__bindgen_anon_1
                    .dev
                    .cast(),
            )
        }
    }

    /// Whether it was sent to this host, alone or as one of a group.
    pub(crate) fn is_for_us(&self) -> bool {
        // SAFETY: the buffer is ours.
        u32::from(unsafe { fields(self.skb) }.pkt_type()) != bindings::PACKET_OTHERHOST
    }

    /// Whether all bytes are in the linear part.
    pub(crate) fn is_linear(&self) -> bool {
        self.raw().data_len == 0
    }

    /// Brings all bytes into the linear part.
    pub(crate) fn linearize(&mut self) -> Result {
        // SAFETY: the buffer is ours and unshared.
        to_result(unsafe { bindings::skb_linearize(self.skb.as_ptr()) })
    }

    /// Whether the namespace's IPsec policies let it in, which UDP asks only later.
    pub(crate) fn passes_ipsec(&self) -> bool {
        let dir = bindings::XFRM_POLICY_IN as c_int;
        let skb = self.skb.as_ptr();
        // SAFETY: the buffer is ours and its network header is in place; no socket is needed.
        unsafe {
            match self.network().first().map(|byte| byte >> 4) {
                Some(6) => bindings::xfrm6_policy_check(ptr::null_mut(), dir, skb) != 0,
                _ => bindings::xfrm4_policy_check(ptr::null_mut(), dir, skb) != 0,
            }
        }
    }

    /// How it is to be cut.
    pub(crate) fn gso(&self) -> Gso {
        // SAFETY: the buffer is ours.
        let shared = unsafe { shared(self.skb) };
        if shared.gso_size == 0 {
            return Gso::None;
        }
        match shared.gso_type & (UDP_L4 | FRAGLIST) {
            UDP_L4 => Gso::Udp(usize::from(shared.gso_size)),
            _ => Gso::Other,
        }
    }

    /// The bytes of the linear part from the network header on.
    pub(crate) fn network(&self) -> &[u8] {
        let skb = self.raw();
        // SAFETY: the buffer is ours.
        let start = usize::from(unsafe { fields(self.skb) }.network_header);
        let len = (skb.tail as usize).saturating_sub(start);
        // SAFETY: `head..head + tail` is the linear part, initialised by the sender or the driver.
        unsafe { slice::from_raw_parts(skb.head.add(start), len) }
    }
}

/// Packets up to this are so small that fresh memory costs little.
const SMALL: u32 = 512;
/// Bytes of the record at the end of the buffer, in whole cache lines of any CPU.
const RECORD: usize = size_of::<bindings::skb_shared_info>().next_multiple_of(256);

/// A linear IP packet that is being built.
pub(crate) struct SkBuff(NonNull<bindings::sk_buff>);

// SAFETY: an owned buffer belongs to no thread.
unsafe impl Send for SkBuff {}

impl SkBuff {
    /// A buffer of `len` bytes, the IP header first, with `headroom` before them.
    ///
    /// The bytes hold whatever was there: write them all. Does not sleep.
    pub(crate) fn new(pool: &SkbPool, headroom: usize, len: usize) -> Result<Self> {
        let size = u32::try_from(headroom + len)?;
        let skb = match size {
            ..=SMALL => {
                let flags = bindings::FERROCE_GFP_ATOMIC_NOWARN;
                // SAFETY: no requirement.
                NonNull::new(unsafe { bindings::alloc_skb(size, flags) }).ok_or(ENOMEM)?
            }
            _ => Self::around(pool.block(size as usize + RECORD).ok_or(ENOMEM)?)?,
        };
        // SAFETY: the buffer is new, and both parts fit the size that was asked for.
        unsafe {
            bindings::skb_reserve(skb.as_ptr(), headroom as c_int);
            bindings::skb_put(skb.as_ptr(), len as u32);
            let network = (*skb.as_ptr()).data.offset_from((*skb.as_ptr()).head);
            fields(skb).network_header = network as u16;
        }
        Ok(Self(skb))
    }

    /// An empty buffer that has a block as its memory.
    fn around(block: Block) -> Result<NonNull<bindings::sk_buff>> {
        // SAFETY: the block is writable memory of that size, and the buffer gets our reference
        // of its pages, which it drops when it goes.
        let skb = unsafe { bindings::build_skb(block.start().cast(), block.size() as u32) };
        let skb = NonNull::new(skb).ok_or(ENOMEM)?;
        block.into_raw();
        Ok(skb)
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the buffer is ours.
        unsafe { self.0.as_ref() }.len as usize
    }

    /// All bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the buffer is ours and linear. Its memory came from the C allocator, which
        // gives bytes of some value.
        unsafe {
            let skb = self.0.as_ref();
            slice::from_raw_parts_mut(skb.data, skb.len as usize)
        }
    }

    /// Says where the UDP header is.
    pub(crate) fn set_transport(&mut self, offset: usize) {
        // SAFETY: the buffer is ours.
        let fields = unsafe { fields(self.0) };
        fields.transport_header = fields.network_header + offset as u16;
    }

    /// Makes it a run of UDP datagrams of `size` payload bytes each. Needs
    /// [`Self::set_transport`]; the UDP checksum is left to the device, so the field
    /// must hold the pseudo-header's sum.
    pub(crate) fn set_udp_gso(&mut self, size: usize, segments: usize) {
        /// Where a UDP header has its checksum.
        const CHECKSUM_OFFSET: u16 = 6;
        // SAFETY: the buffer is ours, so both records may be written.
        let (fields, shared) = unsafe { (fields(self.0), shared(self.0)) };
        shared.gso_size = size as u16;
        shared.gso_segs = segments as u16;
        shared.gso_type = UDP_L4;
        fields.set_ip_summed(bindings::CHECKSUM_PARTIAL as u8);
        // The union's other member is the sum of a received packet.
        let start = ChecksumStart {
            csum_start: fields.transport_header,
            csum_offset: CHECKSUM_OFFSET,
        };
        fields.__bindgen_anon_1.__bindgen_anon_1 = start;
    }

    /// Gives the packet to the IP stack, to go out along `route`. The lengths and the
    /// checksum of the IP header are filled in there.
    ///
    /// Must not be called under a lock that the receiving side takes: over a virtual
    /// link the peer may run inside this call.
    pub(crate) fn send(mut self, route: Route) -> Result {
        /// The longer of the two IP headers.
        const MIN_LEN: usize = 40;
        if self.bytes().len() < MIN_LEN {
            return Err(EINVAL);
        }
        let skb = ManuallyDrop::new(self).0.as_ptr();
        let guard = rcu::read_lock();
        let net = route.device(&guard).net(&guard).as_raw();
        let v6 = route.is_v6();
        // SAFETY: the buffer is ours and given away here with the route's reference; the
        // namespace of the route's device lives as long as the guard.
        let err = unsafe {
            bindings::skb_dst_set(skb, route.into_raw().cast());
            if v6 {
                bindings::ip6_local_out(net, ptr::null_mut(), skb)
            } else {
                bindings::ip_local_out(net, ptr::null_mut(), skb)
            }
        };
        match err {
            XMIT_CN => Ok(()),
            1.. => Err(ENOBUFS),
            _ => to_result(err),
        }
    }
}

impl SkBuff {
    /// Sends it out of an Ethernet interface as it is, behind an Ethernet header. A frame to
    /// the interface's own address comes back from there.
    ///
    /// Must not be called under a lock that the receiving side takes, as [`Self::send`].
    pub(crate) fn send_on(self, dev: &NetDevice, ethertype: u16, to: [u8; 6]) -> Result {
        const ADDRESS: usize = 6;
        let skb = ManuallyDrop::new(self).0;
        let own = dev.mac().ok_or(EINVAL);
        let (Ok(own), true) = (own, dev.is_ethernet()) else {
            // SAFETY: the buffer is ours and goes here.
            unsafe { bindings::kfree_skb(skb.as_ptr()) };
            return Err(EINVAL);
        };
        // SAFETY: the buffer is ours, with room for a link header before its data, and is
        // given away here; the device is there for the borrow.
        let err = unsafe {
            let raw = skb.as_ptr();
            let header = bindings::skb_push(raw, 2 * ADDRESS as u32 + 2).cast::<u8>();
            header.copy_from(to.as_ptr(), ADDRESS);
            header.add(ADDRESS).copy_from(own.as_ptr(), ADDRESS);
            header
                .add(2 * ADDRESS)
                .copy_from(ethertype.to_be_bytes().as_ptr(), 2);
            fields(skb).mac_header = (*raw).data.offset_from((*raw).head) as u16;
            fields(skb).protocol = ethertype.to_be();
            (*raw)
                .__bindgen_anon_1
                .__bindgen_anon_1
                .__bindgen_anon_1
                .dev = dev.as_raw().cast();
            if to == own {
                bindings::dev_forward_skb(dev.as_raw(), raw)
            } else {
                bindings::dev_queue_xmit(raw)
            }
        };
        match err {
            XMIT_CN => Ok(()),
            1.. => Err(ENOBUFS),
            _ => to_result(err),
        }
    }
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        // SAFETY: the buffer is ours and goes here.
        unsafe { bindings::kfree_skb(self.0.as_ptr()) }
    }
}

/// Frees a received buffer that was taken.
///
/// # Safety
///
/// `skb` is valid and the caller's.
pub(super) unsafe fn consume(skb: *mut bindings::sk_buff) {
    // SAFETY: the caller says so.
    unsafe { bindings::consume_skb(skb) }
}

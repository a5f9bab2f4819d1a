// SPDX-License-Identifier: GPL-2.0

//! Work queue elements as a process writes them: the kernel side's own decoder, on a ring of any bytes.

#[path = "../../../../drivers/ferroce/verbs/wqe.rs"]
#[allow(unused_imports, reason = "the kernel's prelude is empty here")]
mod wqe;

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::HostEnv;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::QpType;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcStatus;

use super::driver::fuzz;
use super::driver::mix;
use crate::kernel_ext::ring::Ring;

/// Limits of the device, which the decoder looks up beside itself.
mod device {
    pub(crate) mod limits {
        /// Most inline bytes.
        pub(crate) const INLINE: u32 = 1024;
    }
}

fn target(bytes: &[u8]) -> u64 {
    let (&first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let ring = Ring(rest.to_vec());
    let datagram = first & 1 != 0;
    let mut list = [0; 4 * Sge::SIZE];
    let recv = wqe::read_recv(&ring, 0, &mut list);
    assert!(recv.num_sge <= 4, "more elements than there is room for");
    let mut payload = [0; device::limits::INLINE as usize];
    let (wr, data) = wqe::read_send(&ring, 0, datagram, &mut payload);
    if wr.flags.inline && !data.is_empty() {
        assert!(
            rest.ends_with(&rest[wqe::SEND_HEADER..]) && rest[wqe::SEND_HEADER..].starts_with(data)
        );
    }
    let mut pair = Pair::new(&Setup {
        qp_type: if datagram { QpType::Ud } else { QpType::Rc },
        retry_cnt: 1,
        rnr_retry: 1,
        ..Setup::default()
    });
    pair.ends[1].recv(1, &[Endpoint::sge(0, 5000)]);
    let posted = pair.ends[0].qp.post_send(&wr, data);
    pair.run_for(20_000_000);
    let kind = std::mem::discriminant(&wr.op);
    let op = format!("{kind:?}")
        .bytes()
        .fold(0, |sum, byte| mix(sum, byte.into()));
    let mut what = mix(op, u64::from(first & 1));
    what = mix(what, posted.map_or_else(|error| 1 + error as u64, |()| 0));
    let HostEnv { send_cq, .. } = &pair.ends[0].env;
    for wc in send_cq {
        assert_eq!(wc.wr_id, wr.wr_id);
        assert!(wr.op != SendOp::Malformed || wc.status == WcStatus::LocQpOpErr);
        what = mix(what, 0x10 + wc.status as u64);
    }
    mix(what, u64::from(recv.num_sge) + data.len().min(5) as u64 * 8)
}

#[test]
fn work_queue_elements() {
    fuzz("work", 1_000, target);
}

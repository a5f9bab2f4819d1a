// SPDX-License-Identifier: GPL-2.0

//! `src/abi.rs` agrees with `uapi/ferroce.h`, the header is good C and C++, and
//! its rings are those of the rxe uABI: a C compiler says so.

use ferroce::abi;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../uapi/ferroce.h");

/// Compiles `source` without output; `name` tells the tests' files apart.
fn compiles(name: &str, source: &str, language: &[&str]) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc")
        .args(language)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .arg(&file)
        .output()
        .expect("a C compiler called cc");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A field's name in C: a final _ avoids a keyword of Rust.
fn c_field(name: &str) -> &str {
    name.strip_suffix('_').unwrap_or(name)
}

#[test]
fn rust_and_c_agree_on_every_struct_and_ioctl() {
    let mut source = format!("#include \"{HEADER}\"\n");
    let mut check = |what: String| writeln!(source, "_Static_assert({what}, \"\");").unwrap();
    for layout in abi::LAYOUTS {
        let c_name = layout.c_name;
        check(format!(
            "sizeof(struct ferroce_{c_name}) == {}",
            layout.size
        ));
        for (field, offset, size) in layout.fields {
            let field = c_field(field);
            check(format!(
                "__builtin_offsetof(struct ferroce_{c_name}, {field}) == {offset}"
            ));
            check(format!(
                "sizeof(((struct ferroce_{c_name} *)0)->{field}) == {size}"
            ));
        }
    }
    for (name, number) in abi::IOCTLS {
        check(format!("FERROCE_IOC_{name} == {number}u"));
    }
    for (name, value) in [
        ("ABI_VERSION", abi::ABI_VERSION as usize),
        ("MAX_GIDS", abi::MAX_GIDS),
        ("MAX_ENTER_QPS", abi::MAX_ENTER_QPS),
        ("PORT_ACTIVE", abi::PORT_ACTIVE as usize),
        ("QP_RC", abi::QP_RC as usize),
        ("WR_RDMA_WRITE", abi::WR_RDMA_WRITE as usize),
        ("SEND_SIGNALED", abi::SEND_SIGNALED as usize),
        ("ACCESS_LOCAL_WRITE", abi::access::LOCAL_WRITE as usize),
        ("ACCESS_REMOTE_WRITE", abi::access::REMOTE_WRITE as usize),
        ("ACCESS_REMOTE_READ", abi::access::REMOTE_READ as usize),
        ("QPS_INIT", abi::qp_state::INIT as usize),
        ("QPS_RTR", abi::qp_state::RTR as usize),
        ("QPS_RTS", abi::qp_state::RTS as usize),
        ("QP_STATE", abi::qp_mask::STATE as usize),
        ("QP_ACCESS", abi::qp_mask::ACCESS as usize),
        ("QP_PKEY_INDEX", abi::qp_mask::PKEY_INDEX as usize),
        ("QP_PORT", abi::qp_mask::PORT as usize),
        ("QP_AV", abi::qp_mask::AV as usize),
        ("QP_PATH_MTU", abi::qp_mask::PATH_MTU as usize),
        ("QP_TIMEOUT", abi::qp_mask::TIMEOUT as usize),
        ("QP_RETRY_CNT", abi::qp_mask::RETRY_CNT as usize),
        ("QP_RNR_RETRY", abi::qp_mask::RNR_RETRY as usize),
        ("QP_RQ_PSN", abi::qp_mask::RQ_PSN as usize),
        ("QP_MAX_RD_ATOMIC", abi::qp_mask::MAX_RD_ATOMIC as usize),
        ("QP_MIN_RNR_TIMER", abi::qp_mask::MIN_RNR_TIMER as usize),
        ("QP_SQ_PSN", abi::qp_mask::SQ_PSN as usize),
        (
            "QP_MAX_DEST_RD_ATOMIC",
            abi::qp_mask::MAX_DEST_RD_ATOMIC as usize,
        ),
        ("QP_DEST_QPN", abi::qp_mask::DEST_QPN as usize),
        ("OBJECT_PD", abi::Object::Pd as usize),
        ("OBJECT_MR", abi::Object::Mr as usize),
        ("OBJECT_CQ", abi::Object::Cq as usize),
        ("OBJECT_QP", abi::Object::Qp as usize),
    ] {
        check(format!("FERROCE_{name} == {value}"));
    }
    compiles("agree.c", &source, &["-std=c11"]);
}

#[test]
fn every_struct_of_the_header_is_known_to_rust() {
    let header = std::fs::read_to_string(HEADER).unwrap();
    let names: Vec<_> = header
        .lines()
        .filter_map(|line| line.strip_prefix("struct ferroce_")?.strip_suffix(" {"))
        .collect();
    let known: Vec<_> = abi::LAYOUTS.iter().map(|layout| layout.c_name).collect();
    assert_eq!(names, known);
}

#[test]
fn the_header_is_good_c_and_cpp() {
    let source = format!("#include \"{HEADER}\"\n");
    compiles("header.c", &source, &["-std=c11", "-Wpadded"]);
    compiles(
        "header.cpp",
        &source,
        &["-x", "c++", "-std=c++17", "-Wpadded"],
    );
}

#[test]
fn rings_are_those_of_the_rxe_uabi() {
    let mut source = format!(
        "#include \"{HEADER}\"\n#include <rdma/rdma_user_rxe.h>\n#include <rdma/ib_user_verbs.h>\n"
    );
    let mut same = |ours: &str, theirs: &str, fields: &[(&str, &str)]| {
        writeln!(
            source,
            "_Static_assert(sizeof({ours}) == sizeof({theirs}), \"\");"
        )
        .unwrap();
        for (our, their) in fields {
            writeln!(
                source,
                "_Static_assert(__builtin_offsetof({ours}, {our}) == \
                 __builtin_offsetof({theirs}, {their}), \"{our}\");"
            )
            .unwrap();
        }
    };
    same(
        "struct ferroce_ring",
        "struct rxe_queue_buf",
        &[
            ("log2_elem_size", "log2_elem_size"),
            ("index_mask", "index_mask"),
            ("producer_index", "producer_index"),
            ("consumer_index", "consumer_index"),
        ],
    );
    same(
        "struct ferroce_send_wqe",
        "struct rxe_send_wqe",
        &[
            ("wr_id", "wr.wr_id"),
            ("opcode", "wr.opcode"),
            ("flags", "wr.send_flags"),
            ("imm_data", "wr.ex.imm_data"),
            ("remote_addr", "wr.wr.rdma.remote_addr"),
            ("rkey", "wr.wr.rdma.rkey"),
            ("status", "status"),
            ("iova", "iova"),
            ("dma", "dma"),
        ],
    );
    same(
        "struct ferroce_recv_wqe",
        "struct rxe_recv_wqe",
        &[("wr_id", "wr_id"), ("dma", "dma")],
    );
    same(
        "struct ferroce_dma",
        "struct rxe_dma_info",
        &[
            ("length", "length"),
            ("num_sge", "num_sge"),
            ("resid", "resid"),
        ],
    );
    same(
        "struct ferroce_sge",
        "struct rxe_sge",
        &[("addr", "addr"), ("length", "length"), ("lkey", "lkey")],
    );
    same(
        "struct ferroce_wc",
        "struct ib_uverbs_wc",
        &[
            ("wr_id", "wr_id"),
            ("status", "status"),
            ("opcode", "opcode"),
            ("byte_len", "byte_len"),
            ("imm_data", "ex.imm_data"),
            ("qpn", "qp_num"),
            ("src_qpn", "src_qp"),
            ("flags", "wc_flags"),
            ("port_num", "port_num"),
        ],
    );
    compiles("rxe.c", &source, &["-std=c11"]);
}

/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ABI of /dev/ferroce, the verbs character device.
 *
 * One open file is one context. QUERY, LIST_DEVICES and GET_DEVICE work at
 * once; BIND ties the context to one RDMA device, after which objects can be
 * made. Objects are named by handles, which are never 0 and mean something
 * only within their context. Closing the file destroys them all.
 *
 * Work requests and completions travel through rings in shared memory: mmap()
 * the offset and size that CREATE_CQ and CREATE_QP return, write entries,
 * advance the producer index, call ENTER.
 *
 * Fields called pad or reserved must be 0, flags and masks may hold only the
 * bits named here; anything else is answered with EINVAL. A struct grows only
 * at its end: a shorter one than the kernel's counts as filled up with zeros,
 * a longer one is accepted if what the kernel does not know is zero (else
 * E2BIG). An ioctl that the kernel does not know is answered with ENOTTY.
 *
 * Errors that any ioctl on objects may give: ENXIO before BIND; ENODEV once the
 * device was removed, which takes all objects along; ENOENT for a handle that
 * nothing has; EFAULT for an address that is not the process's.
 *
 * While FERROCE_ABI_VERSION is 0, the layout may change at any time.
 */
#ifndef FERROCE_UAPI_H
#define FERROCE_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FERROCE_ABI_VERSION	0
#define FERROCE_DEVICE_PATH	"/dev/ferroce"

#define FERROCE_NAME_LEN	64	/* of an RDMA device, with its final NUL */
#define FERROCE_NETDEV_LEN	16	/* of its interface, with its final NUL */
#define FERROCE_MAX_GIDS	256	/* per GET_DEVICE */
#define FERROCE_MAX_ENTER_QPS	64	/* per ENTER */

/* ---- devices ------------------------------------------------------------ */

/* bits of ferroce_query.features */
#define FERROCE_FEATURE_RC		(1ULL << 0)	/* reliable connected QPs */

struct ferroce_query {
	__u32 abi_version;		/* out */
	__u32 pad;
	__aligned_u64 features;		/* out: FERROCE_FEATURE_* */
};

/* The indices of the devices that the caller's network namespace may use. */
struct ferroce_list_devices {
	__aligned_u64 indices;		/* in: array of __u32 */
	__u32 capacity;			/* in: its length; 0 asks for the count */
	__u32 count;			/* out: how many devices there are */
};

enum ferroce_port_state {
	FERROCE_PORT_DOWN = 1,
	FERROCE_PORT_ACTIVE = 4,
};

enum ferroce_gid_type {
	FERROCE_GID_ROCE_V2 = 2,
};

struct ferroce_gid {
	__u8 raw[16];
	__u32 index;			/* in the device's GID table */
	__u32 type;			/* FERROCE_GID_* */
};

struct ferroce_get_device {
	__u32 index;			/* in */
	__u32 gid_capacity;		/* in: length of the array at gids */
	__aligned_u64 gids;		/* in: array of struct ferroce_gid, or 0 */
	__u32 gid_count;		/* out: how many GIDs there are */
	__u32 ifindex;			/* out: the interface, 0 when it is gone */
	__u32 port_state;		/* out: FERROCE_PORT_* */
	__u32 netdev_mtu;		/* out: bytes */
	__u32 path_mtu;			/* out: largest RoCE MTU that fits, bytes */
	__u32 pad;
	__u8 name[FERROCE_NAME_LEN];	/* out */
	__u8 netdev[FERROCE_NETDEV_LEN];	/* out */
};

/* Once per context. EBUSY: it is bound already. ENODEV: no such device. */
struct ferroce_bind {
	__u32 index;
	__u32 pad;
};

/* ---- objects ------------------------------------------------------------ */

struct ferroce_alloc_pd {
	__u32 handle;			/* out */
	__u32 pad;
};

/* the same bits as enum ib_access_flags */
#define FERROCE_ACCESS_LOCAL_WRITE	(1U << 0)
#define FERROCE_ACCESS_REMOTE_WRITE	(1U << 1)	/* needs LOCAL_WRITE */
#define FERROCE_ACCESS_REMOTE_READ	(1U << 2)

/* Pins the memory and counts it against RLIMIT_MEMLOCK (ENOMEM beyond it). */
struct ferroce_reg_mr {
	__aligned_u64 addr;		/* in: any alignment */
	__aligned_u64 length;		/* in: bytes, not 0 */
	__u32 pd;			/* in: handle */
	__u32 access;			/* in: FERROCE_ACCESS_* */
	__u32 handle;			/* out */
	__u32 lkey;			/* out */
	__u32 rkey;			/* out */
	__u32 pad;
};

/* Where a ring is mapped: mmap(NULL, size, …, MAP_SHARED, fd, offset). */
struct ferroce_mmap {
	__aligned_u64 offset;
	__u32 size;			/* bytes; 0: there is no such ring */
	__u32 pad;
};

struct ferroce_create_cq {
	__u32 entries;			/* in: wanted; out: what the ring holds */
	__u32 handle;			/* out */
	struct ferroce_mmap ring;	/* out: of struct ferroce_wc */
};

enum ferroce_qp_type {
	FERROCE_QP_RC = 2,
};

#define FERROCE_QP_SIGNAL_ALL	(1U << 0)	/* as if all had FERROCE_SEND_SIGNALED */

struct ferroce_create_qp {
	__u32 type;			/* in: FERROCE_QP_RC */
	__u32 flags;			/* in: FERROCE_QP_* flags */
	__u32 pd;			/* in: handle */
	__u32 send_cq;			/* in: handle */
	__u32 recv_cq;			/* in: handle */
	__u32 max_send_wr;		/* in, out: what was given */
	__u32 max_recv_wr;		/* in, out */
	__u32 max_send_sge;		/* in, out */
	__u32 max_recv_sge;		/* in, out */
	__u32 max_inline_data;		/* in, out: bytes */
	__u32 handle;			/* out */
	__u32 qpn;			/* out */
	struct ferroce_mmap sq;		/* out: of struct ferroce_send_wqe */
	struct ferroce_mmap rq;		/* out: of struct ferroce_recv_wqe */
};

enum ferroce_qp_state {
	FERROCE_QPS_RESET = 0,
	FERROCE_QPS_INIT = 1,
	FERROCE_QPS_RTR = 2,
	FERROCE_QPS_RTS = 3,
	FERROCE_QPS_SQD = 4,
	FERROCE_QPS_SQE = 5,
	FERROCE_QPS_ERR = 6,
};

/* the same bits as enum ib_qp_attr_mask; each says which fields are read */
#define FERROCE_QP_STATE		(1U << 0)
#define FERROCE_QP_ACCESS		(1U << 3)
#define FERROCE_QP_PKEY_INDEX		(1U << 4)	/* which is always 0 */
#define FERROCE_QP_PORT			(1U << 5)	/* which is always 1 */
#define FERROCE_QP_AV			(1U << 7)	/* dgid … flow_label */
#define FERROCE_QP_PATH_MTU		(1U << 8)
#define FERROCE_QP_TIMEOUT		(1U << 9)
#define FERROCE_QP_RETRY_CNT		(1U << 10)
#define FERROCE_QP_RNR_RETRY		(1U << 11)
#define FERROCE_QP_RQ_PSN		(1U << 12)
#define FERROCE_QP_MAX_RD_ATOMIC	(1U << 13)
#define FERROCE_QP_MIN_RNR_TIMER	(1U << 15)
#define FERROCE_QP_SQ_PSN		(1U << 16)
#define FERROCE_QP_MAX_DEST_RD_ATOMIC	(1U << 17)
#define FERROCE_QP_DEST_QPN		(1U << 20)

/*
 * Which masks each state change needs and allows is the InfiniBand
 * specification's table (for RC: INIT takes STATE, ACCESS, PKEY_INDEX, PORT;
 * RTR takes AV, PATH_MTU, DEST_QPN, RQ_PSN, MAX_DEST_RD_ATOMIC, MIN_RNR_TIMER;
 * RTS takes TIMEOUT, RETRY_CNT, RNR_RETRY, SQ_PSN, MAX_RD_ATOMIC).
 */
struct ferroce_modify_qp {
	__u32 handle;
	__u32 mask;			/* FERROCE_QP_* above */
	__u32 state;			/* FERROCE_QPS_* */
	__u32 access;			/* FERROCE_ACCESS_*, of the peer */
	__u32 path_mtu;			/* 256, 512, 1024, 2048 or 4096 */
	__u32 dest_qpn;
	__u32 rq_psn;
	__u32 sq_psn;
	__u8 dgid[16];
	__u32 flow_label;
	__u8 sgid_index;
	__u8 hop_limit;
	__u8 traffic_class;
	__u8 timeout;			/* 4.096 µs << timeout; 0: none */
	__u8 retry_cnt;			/* 0–7 */
	__u8 rnr_retry;			/* 0–7; 7: for ever */
	__u8 min_rnr_timer;		/* code 0–31 of the specification */
	__u8 max_rd_atomic;
	__u8 max_dest_rd_atomic;
	__u8 pad[7];
};

enum ferroce_object {
	FERROCE_OBJECT_PD = 1,
	FERROCE_OBJECT_MR = 2,
	FERROCE_OBJECT_CQ = 3,
	FERROCE_OBJECT_QP = 4,
};

/* EBUSY: another object still uses it. A ring lives on until it is unmapped. */
struct ferroce_destroy {
	__u32 kind;			/* FERROCE_OBJECT_* */
	__u32 handle;
};

/* ---- work --------------------------------------------------------------- */

#define FERROCE_WAIT_FOR_EVER	(~0ULL)

/*
 * Hands the new entries of the send queues of some QPs to the device, one QP
 * after the other up to the first that fails (EINVAL: not ready to send), then
 * waits until min_complete entries are in a CQ's ring or the time is over.
 * Both halves may be empty. After a time-out the call succeeds too: look at
 * `completed`. EINTR: a signal came; what was submitted stays so.
 */
struct ferroce_enter {
	__aligned_u64 qps;		/* in: array of __u32 handles, or 0 */
	__u32 qp_count;			/* in: its length, at most FERROCE_MAX_ENTER_QPS */
	__u32 cq;			/* in: handle to wait on, or 0 */
	__u32 min_complete;		/* in: 0 does not wait */
	__u32 completed;		/* out: entries that are in the CQ's ring */
	__aligned_u64 timeout_ns;	/* in: or FERROCE_WAIT_FOR_EVER */
};

/*
 * The head of each ring; entries of 1 << log2_elem_size bytes follow it, one
 * for each value of index_mask. The indices are kept masked; the ring is empty
 * when they are equal and full when one more entry would make them so. Whoever
 * writes an index does so with release order, whoever reads the other side's
 * with acquire order. The kernel believes only its own copy of the first two.
 */
struct ferroce_ring {
	__u32 log2_elem_size;
	__u32 index_mask;
	__u32 pad_1[30];
	__u32 producer_index;
	__u32 pad_2[31];
	__u32 consumer_index;
	__u32 pad_3[31];
};

struct ferroce_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

/* the same numbers as enum ib_wr_opcode */
enum ferroce_wr_opcode {
	FERROCE_WR_RDMA_WRITE = 0,
	FERROCE_WR_RDMA_WRITE_WITH_IMM = 1,
	FERROCE_WR_SEND = 2,
	FERROCE_WR_SEND_WITH_IMM = 3,
	FERROCE_WR_RDMA_READ = 4,
};

/* the same bits as enum ib_send_flags */
#define FERROCE_SEND_FENCE	(1U << 0)
#define FERROCE_SEND_SIGNALED	(1U << 1)
#define FERROCE_SEND_SOLICITED	(1U << 2)
#define FERROCE_SEND_INLINE	(1U << 3)

/*
 * What a work request moves. num_sge entries of struct ferroce_sge follow the
 * work request that ends in this, or, with FERROCE_SEND_INLINE, `length` bytes.
 */
struct ferroce_dma {
	__u32 length;			/* sum of the entries' lengths */
	__u32 resid;			/* the same at first */
	__u32 cur_sge;			/* 0 at first */
	__u32 num_sge;
	__u32 sge_offset;		/* 0 at first */
	__u32 reserved;
};

/* Same layout as the work request of the rdma-core door. */
struct ferroce_send_wqe {
	__aligned_u64 wr_id;
	__u32 reserved_1;
	__u32 opcode;			/* FERROCE_WR_* */
	__u32 flags;			/* FERROCE_SEND_* */
	__u32 imm_data;			/* big endian, for …_WITH_IMM */
	__aligned_u64 remote_addr;	/* for RDMA_* */
	__u32 rkey;			/* for RDMA_* */
	__u32 reserved_2[27];
	__u32 status;			/* 0 at first, as all up to dma */
	__u32 wqe_state;
	__aligned_u64 iova;		/* remote_addr again */
	__u32 reserved_3[6];
	struct ferroce_dma dma;
};

struct ferroce_recv_wqe {
	__aligned_u64 wr_id;
	__u32 reserved[2];
	struct ferroce_dma dma;
};

/* the same numbers as enum ib_wc_status */
enum ferroce_wc_status {
	FERROCE_WC_SUCCESS = 0,
	FERROCE_WC_LOC_LEN_ERR = 1,
	FERROCE_WC_LOC_QP_OP_ERR = 2,
	FERROCE_WC_LOC_PROT_ERR = 4,
	FERROCE_WC_WR_FLUSH_ERR = 5,
	FERROCE_WC_MW_BIND_ERR = 6,
	FERROCE_WC_BAD_RESP_ERR = 7,
	FERROCE_WC_LOC_ACCESS_ERR = 8,
	FERROCE_WC_REM_INV_REQ_ERR = 9,
	FERROCE_WC_REM_ACCESS_ERR = 10,
	FERROCE_WC_REM_OP_ERR = 11,
	FERROCE_WC_RETRY_EXC_ERR = 12,
	FERROCE_WC_RNR_RETRY_EXC_ERR = 13,
	FERROCE_WC_FATAL_ERR = 19,
	FERROCE_WC_GENERAL_ERR = 21,
};

enum ferroce_wc_opcode {
	FERROCE_WC_SEND = 0,
	FERROCE_WC_RDMA_WRITE = 1,
	FERROCE_WC_RDMA_READ = 2,
	FERROCE_WC_RECV = 128,
	FERROCE_WC_RECV_RDMA_WITH_IMM = 129,
};

#define FERROCE_WC_WITH_IMM	(1U << 1)

/* Same layout as struct ib_uverbs_wc. */
struct ferroce_wc {
	__aligned_u64 wr_id;
	__u32 status;			/* FERROCE_WC_*; after an error only wr_id and qpn hold */
	__u32 opcode;			/* FERROCE_WC_* */
	__u32 vendor_err;
	__u32 byte_len;
	__u32 imm_data;			/* big endian, with FERROCE_WC_WITH_IMM */
	__u32 qpn;
	__u32 src_qpn;
	__u32 flags;			/* FERROCE_WC_WITH_IMM */
	__u16 pkey_index;
	__u16 slid;
	__u8 sl;
	__u8 dlid_path_bits;
	__u8 port_num;
	__u8 reserved;
};

/* ---- ioctls ------------------------------------------------------------- */

#define FERROCE_IOC_MAGIC	0xBC

#define FERROCE_IOC_QUERY	 _IOWR(FERROCE_IOC_MAGIC, 0x00, struct ferroce_query)
#define FERROCE_IOC_LIST_DEVICES _IOWR(FERROCE_IOC_MAGIC, 0x01, struct ferroce_list_devices)
#define FERROCE_IOC_GET_DEVICE	 _IOWR(FERROCE_IOC_MAGIC, 0x02, struct ferroce_get_device)
#define FERROCE_IOC_BIND	 _IOW(FERROCE_IOC_MAGIC, 0x03, struct ferroce_bind)
#define FERROCE_IOC_ALLOC_PD	 _IOWR(FERROCE_IOC_MAGIC, 0x10, struct ferroce_alloc_pd)
#define FERROCE_IOC_REG_MR	 _IOWR(FERROCE_IOC_MAGIC, 0x11, struct ferroce_reg_mr)
#define FERROCE_IOC_CREATE_CQ	 _IOWR(FERROCE_IOC_MAGIC, 0x12, struct ferroce_create_cq)
#define FERROCE_IOC_CREATE_QP	 _IOWR(FERROCE_IOC_MAGIC, 0x13, struct ferroce_create_qp)
#define FERROCE_IOC_MODIFY_QP	 _IOW(FERROCE_IOC_MAGIC, 0x14, struct ferroce_modify_qp)
#define FERROCE_IOC_DESTROY	 _IOW(FERROCE_IOC_MAGIC, 0x15, struct ferroce_destroy)
#define FERROCE_IOC_ENTER	 _IOWR(FERROCE_IOC_MAGIC, 0x20, struct ferroce_enter)

/* ---- layout ------------------------------------------------------------- */

#ifdef __cplusplus
#define FERROCE_CHECK(what)	static_assert(what, #what)
#else
#define FERROCE_CHECK(what)	_Static_assert(what, #what)
#endif

FERROCE_CHECK(sizeof(struct ferroce_query) == 16);
FERROCE_CHECK(sizeof(struct ferroce_list_devices) == 16);
FERROCE_CHECK(sizeof(struct ferroce_gid) == 24);
FERROCE_CHECK(sizeof(struct ferroce_get_device) == 120);
FERROCE_CHECK(sizeof(struct ferroce_bind) == 8);
FERROCE_CHECK(sizeof(struct ferroce_alloc_pd) == 8);
FERROCE_CHECK(sizeof(struct ferroce_reg_mr) == 40);
FERROCE_CHECK(sizeof(struct ferroce_mmap) == 16);
FERROCE_CHECK(sizeof(struct ferroce_create_cq) == 24);
FERROCE_CHECK(sizeof(struct ferroce_create_qp) == 80);
FERROCE_CHECK(sizeof(struct ferroce_modify_qp) == 68);
FERROCE_CHECK(sizeof(struct ferroce_destroy) == 8);
FERROCE_CHECK(sizeof(struct ferroce_enter) == 32);
FERROCE_CHECK(sizeof(struct ferroce_ring) == 384);
FERROCE_CHECK(__builtin_offsetof(struct ferroce_ring, producer_index) == 128);
FERROCE_CHECK(__builtin_offsetof(struct ferroce_ring, consumer_index) == 256);
FERROCE_CHECK(sizeof(struct ferroce_sge) == 16);
FERROCE_CHECK(sizeof(struct ferroce_dma) == 24);
FERROCE_CHECK(sizeof(struct ferroce_send_wqe) == 208);
FERROCE_CHECK(__builtin_offsetof(struct ferroce_send_wqe, remote_addr) == 24);
FERROCE_CHECK(__builtin_offsetof(struct ferroce_send_wqe, status) == 144);
FERROCE_CHECK(__builtin_offsetof(struct ferroce_send_wqe, iova) == 152);
FERROCE_CHECK(__builtin_offsetof(struct ferroce_send_wqe, dma) == 184);
FERROCE_CHECK(sizeof(struct ferroce_recv_wqe) == 40);
FERROCE_CHECK(__builtin_offsetof(struct ferroce_recv_wqe, dma) == 16);
FERROCE_CHECK(sizeof(struct ferroce_wc) == 48);

#undef FERROCE_CHECK

#endif /* FERROCE_UAPI_H */

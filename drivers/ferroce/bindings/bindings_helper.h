/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What ferroce needs of the kernel's C headers, for bindgen and for the
 * wrappers of static inlines that it makes.
 */
#include <linux/crc32.h>
#include <linux/dma-buf.h>
#include <linux/etherdevice.h>
#include <linux/hmm.h>
#include <linux/hrtimer.h>
#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/in6.h>
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/kref.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/addrconf.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/netns/generic.h>
#include <net/route.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>
#include <net/xfrm.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pack.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_rxe.h>
#include <rdma/uverbs_ioctl.h>

#ifdef CONFIG_X86_64
#include <asm/fpu/api.h>
#endif

/* Macros that bindgen cannot evaluate. */
static const gfp_t FERROCE_XA_FLAGS = XA_FLAGS_ALLOC | XA_FLAGS_LOCK_BH;
static const xa_mark_t FERROCE_XA_PRESENT = XA_PRESENT;

#include "../../../uapi/ferroce.h"

#define FERROCE_COMMAND(name) static const __u32 FERROCE_CMD_##name = FERROCE_IOC_##name
FERROCE_COMMAND(QUERY);
FERROCE_COMMAND(LIST_DEVICES);
FERROCE_COMMAND(GET_DEVICE);
FERROCE_COMMAND(BIND);
FERROCE_COMMAND(ALLOC_PD);
FERROCE_COMMAND(REG_MR);
FERROCE_COMMAND(CREATE_CQ);
FERROCE_COMMAND(CREATE_QP);
FERROCE_COMMAND(MODIFY_QP);
FERROCE_COMMAND(DESTROY);
FERROCE_COMMAND(ENTER);
static const gfp_t FERROCE_GFP_ATOMIC_NOWARN = GFP_ATOMIC | __GFP_NOWARN;
static const gfp_t FERROCE_GFP_BLOCK = GFP_ATOMIC | __GFP_NOWARN | __GFP_COMP;
static const gfp_t FERROCE_GFP_KERNEL = GFP_KERNEL;

/* helpers.c: macros that Rust cannot reach. */
struct ib_ucontext *ferroce_udata_context(struct ib_udata *udata);
unsigned long ferroce_xa_lock(struct xarray *xa);
void ferroce_xa_unlock(struct xarray *xa, unsigned long flags);
unsigned long ferroce_spin_lock_irqsave(spinlock_t *lock);
bool ferroce_irqs_disabled(void);
bool ferroce_virt_addr_valid(const void *addr);
struct page *ferroce_virt_to_page(const void *addr);
unsigned int ferroce_num_possible_cpus(void);
bool ferroce_has_vectors(void);
bool ferroce_fpu_begin(void);
void ferroce_fpu_end(void);
struct mem_cgroup *ferroce_memcg_of(struct mm_struct *mm);
struct mem_cgroup *ferroce_memcg_charge(struct mem_cgroup *memcg);
void ferroce_memcg_put(struct mem_cgroup *memcg);

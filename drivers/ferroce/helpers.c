// SPDX-License-Identifier: GPL-2.0
/*
 * Macros of the kernel's headers that Rust cannot reach, one line each.
 */
#include "bindings_helper.h"

struct ib_ucontext *ferroce_udata_context(struct ib_udata *udata)
{
	return container_of(udata, struct uverbs_attr_bundle, driver_udata)->context;
}

unsigned long ferroce_xa_lock(struct xarray *xa)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	return flags;
}

void ferroce_xa_unlock(struct xarray *xa, unsigned long flags)
{
	xa_unlock_irqrestore(xa, flags);
}

unsigned long ferroce_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

bool ferroce_irqs_disabled(void)
{
	return irqs_disabled();
}

bool ferroce_virt_addr_valid(const void *addr)
{
	return virt_addr_valid(addr);
}

struct page *ferroce_virt_to_page(const void *addr)
{
	return virt_to_page(addr);
}

unsigned int ferroce_num_possible_cpus(void)
{
	return num_possible_cpus();
}

/* Whether the CPU has AVX and PCLMULQDQ, and the kernel keeps the registers of 256 bits. */
bool ferroce_has_vectors(void)
{
#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)
	return boot_cpu_has(X86_FEATURE_AVX) && boot_cpu_has(X86_FEATURE_PCLMULQDQ) &&
	       cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL);
#else
	return false;
#endif
}

/* Whether vector registers may be used here, and now are. */
bool ferroce_fpu_begin(void)
{
#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)
	if (irq_fpu_usable()) {
		kernel_fpu_begin_mask(0);
		return true;
	}
#endif
	return false;
}

void ferroce_fpu_end(void)
{
#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)
	kernel_fpu_end();
#endif
}

struct mem_cgroup *ferroce_memcg_of(struct mm_struct *mm)
{
	return get_mem_cgroup_from_mm(mm);
}

struct mem_cgroup *ferroce_memcg_charge(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}

void ferroce_memcg_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

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

/* Whether vector registers may be used here, and the CPU has AVX and PCLMULQDQ. */
bool ferroce_fpu_begin(void)
{
#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)
	if (boot_cpu_has(X86_FEATURE_AVX) && boot_cpu_has(X86_FEATURE_PCLMULQDQ) &&
	    irq_fpu_usable()) {
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

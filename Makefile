# SPDX-License-Identifier: GPL-2.0
ifneq ($(KERNELRELEASE),)
# Read by kbuild, as a directory of a kernel tree.
obj-y += drivers/ferroce/
else
# Read by make, in a clone of its own.

SETUP := qemu-test/setup
export FERROCE_CACHE FERROCE_MIRROR KERNEL_VERSION KDIR

.DEFAULT_GOAL := help
.PHONY: help setup modules tools demo check bench check-debug quick sim shell vng fmt lint clean distclean

help: ## show this text
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20
	@echo
	@echo "  KDIR=DIR          build the modules against your own prepared kernel tree"
	@echo "  SUITE=NAME        one suite of make check, see qemu-test/check --help"
	@echo "  SEED=N PCAP=FILE  what make sim runs, and where its packets go"
	@echo "  ROWS=LIST         what make bench measures (all): rows, patterns, groups such as quick"
	@echo "  CLOCK=NAME        of make bench: instruction, real or both"
	@echo "  ROUNDS=N CPU=NAME of make bench, see qemu-test/bench --help"
	@echo "  KIND=NAME         one kernel of make check-debug: uml-kasan lockdep"
	@echo "  TEST=SCRIPT       what make quick runs (verbs/rc-data.py)"
	@echo "  FERROCE_MIRROR=URL Debian mirror to use instead of the default one"
	@echo "  FERROCE_CACHE=DIR where root, kernel and crates are kept (~/.cache/ferroce)"
	@echo "  KERNEL_VERSION=V  kernel to take instead of the newest of the series"

setup: ## make the Debian root and the prepared kernel tree, cached outside the clone
	@$(SETUP)/root >/dev/null
	@$(SETUP)/kernel >/dev/null

modules: ## build the kernel modules into build/
	@$(SETUP)/build modules

tools: ## build the user tools into build/bin/
	@$(SETUP)/build tools

demo: setup modules tools ## show ferroce at work in a guest, beside rdma_rxe
	@qemu-test/demo

check: setup modules tools ## run every test, or those of SUITE
	@qemu-test/check $(SUITE)

bench: setup modules tools ## measure ferroce beside rdma_rxe; ROWS=quick takes minutes
	@qemu-test/bench $(foreach row,$(ROWS),'$(row)') $(if $(CLOCK),--clock $(CLOCK)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(CPU),--cpu $(CPU))

sim: tools ## one run of the simulator, by SEED, with a trace; PCAP=FILE keeps its packets
	@build/bin/ferroce-sim run $(or $(SEED),0) $(if $(PCAP),--pcap '$(PCAP)')

check-debug: setup modules tools ## run suites in kernels with KASAN, lockdep, kmemleak
	@status=0; for kind in $(or $(KIND),uml-kasan lockdep); do \
		$(SETUP)/debug-kernel $$kind modules >/dev/null && \
		qemu-test/check --kernel $$kind $(SUITE) || status=1; \
	done; exit $$status

quick: setup ## a verbs test in User-mode Linux, seconds after an edit
	@[ -e build/ferroce.ko ] || $(MAKE) modules
	@qemu-test/guest --kernel uml --topology pair --timeout 120 -- \
		qemu-test/selftests/run $(or $(TEST),verbs/rc-data.py)

shell: setup modules tools ## a shell in a guest with two namespaces and the module loaded
	@qemu-test/guest --topology pair --shell

vng: setup modules tools ## a shell in a guest booted by virtme-ng
	@$(SETUP)/enter qemu-test/vng

fmt: setup ## format all sources
	@qemu-test/lint --fix

lint: setup modules ## check formatting and run the linters
	@qemu-test/lint

clean: ## remove build products from the clone; the cache stays
	@$(SETUP)/build clean

distclean: clean ## remove the cache as well
	@$(SETUP)/root --remove-cache

endif

# Targets for building and testing fulgur. They need Go and a Linux machine. Everything
# else comes from the distribution's packages (test/install-deps.sh) or, for
# golangci-lint, from the Go module proxy.

GO     ?= go
BUILD  := build
ARCHES := amd64 arm64

# All targets share compiled packages. Only the race detector needs cgo.
export CGO_ENABLED := 0

# The version of this build, and the time of its commit, used for all files of a release.
VERSION           ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)

# The URL of the release's files, for krew.
DOWNLOADS ?=

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := $(BUILD)/bin/golangci-lint-$(GOLANGCI_VERSION)

C_SOURCES  := $(wildcard bpf/*.c bpf/*.h bench/boltcost/peer/* bench/alloc/testdata/*.c test/rig/pmu/module/*.c)
SH_SOURCES := .ci/run internal/remote/host.sh $(wildcard test/*.sh)

# The packages with privileged tests, which also run under the kernels of the
# rig: those whose tests ask for root, for a VM or for its PMU, or for every kernel.
VM_PACKAGES = $(sort $(dir $(shell grep -rlE --include='*_test.go' '(testenv\.(Root|VM|EveryKernel)|pmu\.Load)\>' bpf cmd internal test)))

# The programs that these tests find in the VM's PATH.
VM_PROGRAMS = $(patsubst %/,%,$(dir $(wildcard cmd/*/main.go)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: $(ARCHES:%=build-%) ## Build the static binary for amd64 and arm64 into build/

.PHONY: build-%
build-%:
	GOOS=linux GOARCH=$* $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -E main.start -X main.described=$(VERSION)' \
		-o $(BUILD)/fulgur-linux-$* ./cmd/fulgur

.PHONY: dist
dist: build ## Make tarballs, packages, a container image, a chart and a manifest for krew with checksums in build/dist/
	rm -rf $(BUILD)/dist
	$(GO) -C packaging run . -version '$(VERSION)' -epoch '$(SOURCE_DATE_EPOCH)' $(if $(DOWNLOADS),-url '$(DOWNLOADS)') $(ARCHES) # a module of its own

.PHONY: check-dist
check-dist: dist deps-test ## Check the output of dist with Debian's tools
	FULGUR_DIST=$(CURDIR)/$(BUILD)/dist $(GO) -C packaging test -count=1 ./...

# The packages whose tests attach BPF programs run one after the other: the kernel drops events of
# a tracepoint while another program attaches or detaches. The other packages run beside them, and
# stepping, which uses ptrace.
MEASURING = $(filter-out internal/branches/stepping/,$(filter bpf/ internal/capture/% internal/branches/% test/e2e/ test/waiting/,$(VM_PACKAGES)))

# The packages that use concurrency. Those without privileged tests run with the race detector in
# make test-race, the others in make test-long, except two that measure the code of their tests.
CONCURRENT = $(sort $(dir $(shell grep -rlE --include='*.go' '\<go (func|[a-z]+\.[A-Za-z])|\.Go\>|\<(sync|atomic)\.|\<chan\>|\<AfterFunc\>' cmd internal)))
RACED      = $(filter-out $(VM_PACKAGES),$(CONCURRENT))
RACED_LONG = $(filter-out internal/capture/offcpu/ internal/capture/oncpu/,$(filter $(VM_PACKAGES),$(CONCURRENT)))

# The packages that would still run when all others have ended start first.
SLOWEST := $(addsuffix /,test/browser internal/branches/stepping test/e2e)

# All packages, and those of a list, in the order in which to test them.
PACKAGES = $(patsubst fulgur/%,%/,$(shell $(GO) list ./...))
ordered  = $(addprefix ./,$(filter $(1),$(SLOWEST)) $(filter-out $(SLOWEST),$(filter $(1),$(PACKAGES))))

# golangci-lint runs vet. Debug information that is not compressed is faster to link, and for fulgur
# to read. The time limit is for tests that hang in spite of their own limits: the longest package takes
# some minutes, and on a machine with a load of 30 more than ten times as long.
TEST := $(GO) test -count=1 -vet=off -timeout 1h -ldflags=-compressdwarf=false

.PHONY: test
test: deps-test ## Run all tests that can run on this machine; fewer without root
	$(MAKE) --no-print-directory -j2 test-measuring test-others

.PHONY: test-measuring test-others
test-measuring:
	$(TEST) -p 1 $(call ordered,$(MEASURING))

# Their lower priority keeps both CPUs busy to the end: test-measuring takes longest.
test-others:
	nice -n 5 $(TEST) $(call ordered,$(filter-out $(MEASURING),$(PACKAGES)))

# The commit from which the tested packages differ.
BASE ?=

.PHONY: quick
quick: ## Run the unprivileged, fast tests of the packages that differ from BASE (main upstream), and of those that import them
	@packages=$$(test/quick.sh '$(BASE)'); [ -z "$$packages" ] || $(GO) test -short -vet=off $$packages

# The race detector takes many times as much CPU time as the tests alone. Its runtime would sleep
# for a second at the end of each package.
.PHONY: test-race
test-race: deps-test ## Run the unprivileged tests of packages that use concurrency with the race detector
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(TEST) -race $(call ordered,$(RACED))

# Number of NMIs in the test of the branch sampler in the VMs.
NMIS ?= 100000

# The kernel under which make test-vm runs the tests that are marked for one kernel. If empty, all tests
# of VM_PACKAGES run under all kernels.
ONE ?= 6.1

# Time limit for the tests of a machine.
VM_TIMEOUT ?= 60m

# Programs of this machine, if installed, that the VMs have besides busybox.
VM_TOOLS := perf sleep cat biolatency offcputime taskset unshare setcap strip objcopy nm

RIG := $(GO) run ./test/rig -timeout $(VM_TIMEOUT) -env FULGUR_NMIS=$(NMIS) $(addprefix -env ,$(filter FULGUR_TEST_LONG=1,FULGUR_TEST_LONG=$(FULGUR_TEST_LONG))) $(RIG_FLAGS)

.PHONY: test-vm
test-vm: deps-test deps-vm ## Run the tests of what depends on the kernel in VMs with Debian's 5.10, 6.1, 6.12 and 7.2
	$(RIG) -one '$(ONE)' $(addprefix -tool ,$(VM_TOOLS)) $(addprefix -program ./,$(VM_PROGRAMS)) \
		$(addprefix ./,$(VM_PACKAGES))

# The same for arm64, with dynamic linking and signed return addresses, and what
# eu-stack needs there. Most of test/e2e needs compilers, and the PMU is amd64's.
ARM64_VM_PACKAGES = internal/unwind/ $(filter-out test/e2e/ test/rig/bolt/ internal/branches/hardware/,$(VM_PACKAGES))
ARM64_CC         ?= aarch64-linux-gnu-gcc-12
ARM64_PACKAGES   := libc6 elfutils libasm1 libbz2-1.0 libdw1 libelf1 liblzma5 libstdc++6 libgcc-s1 libzstd1 zlib1g libdebuginfod1
ARM64_C_PROGRAMS := $(addprefix $(BUILD)/rig/arm64/unwind-,frames lazy signals signed bare)

$(BUILD)/rig/arm64/unwind-%: FLAGS = -static
$(BUILD)/rig/arm64/unwind-lazy: FLAGS = -Wl,-z,lazy
$(BUILD)/rig/arm64/unwind-signed: FLAGS = -static -mbranch-protection=standard
$(BUILD)/rig/arm64/unwind-bare: FLAGS = -static -fno-asynchronous-unwind-tables -fno-unwind-tables
$(BUILD)/rig/arm64/unwind-signals: internal/unwind/testdata/signals.c
$(filter-out %-signals,$(ARM64_C_PROGRAMS)): internal/unwind/testdata/frames.c
$(ARM64_C_PROGRAMS):
	@mkdir -p $(@D)
	$(ARM64_CC) -O2 $(FLAGS) -o $@ $<

.PHONY: test-vm-arm64
test-vm-arm64: deps-arm64 $(ARM64_C_PROGRAMS) ## Run the privileged tests in VMs with Debian's kernels for arm64
	$(RIG) -arch arm64 -env FULGUR_UNWIND_STACKS=10 $(addprefix -program ./,$(VM_PROGRAMS)) \
		$(addprefix -package ,$(ARM64_PACKAGES)) \
		$(foreach program,$(ARM64_C_PROGRAMS),-file $(program)=bin/$(notdir $(program))) $(addprefix ./,$(ARM64_VM_PACKAGES))

COLLECTOR := $(BUILD)/bin/collector

$(COLLECTOR): $(addprefix test/collector/,main.go go.mod go.sum)
	$(GO) -C $(<D) build -o $(CURDIR)/$@ .

.PHONY: test-collector
test-collector: deps-test $(COLLECTOR) ## Send profiles to an OpenTelemetry Collector, and compare what it writes
	FULGUR_COLLECTOR=$(CURDIR)/$(COLLECTOR) $(GO) test -count=1 -run '^TestCollector' ./test/e2e

.PHONY: test-long
# Run it with make -k, so that a failure does not skip the rest.
test-long: test-long-unprivileged test-long-privileged test-long-race test-collector test-unwind test-symbols test-long-vm test-long-vm-arm64 ## Run everything: long tests, under all kernels, a million NMIs, arm64 (hours)

.PHONY: test-long-unprivileged test-long-privileged test-long-race
test-long-unprivileged: deps-test deps-symbols
	CGO_ENABLED=1 FULGUR_TEST_LONG=1 $(GO) test -count=1 -race -timeout 90m $(addprefix ./,$(filter-out $(VM_PACKAGES),$(PACKAGES)))
test-long-privileged: deps-test deps-symbols
	FULGUR_TEST_LONG=1 $(GO) test -count=1 -timeout 90m -p 1 $(addprefix ./,$(VM_PACKAGES))
test-long-race: deps-test
	CGO_ENABLED=1 $(GO) test -count=1 -race -timeout 90m -p 1 $(addprefix ./,$(RACED_LONG))

.PHONY: test-long-vm test-long-vm-arm64
test-long-vm test-long-vm-arm64: test-long-%:
	$(MAKE) test-$* ONE= NMIS=1000000 FULGUR_TEST_LONG=1 VM_TIMEOUT=4h

.PHONY: test-unwind
test-unwind: deps-test ## Compare 15 000 stacks of stopped programs with gdb and eu-stack
	FULGUR_UNWIND_STACKS=300 $(GO) test -count=1 -p 1 -v -timeout 60m -run 'TestProcesses|TestWalkStopped' ./internal/unwind ./internal/capture/oncpu

.PHONY: test-symbols
test-symbols: deps-symbols ## Compare 180 000 addresses with llvm-symbolizer and addr2line
	FULGUR_TEST_LONG=1 $(GO) test -count=1 -v -timeout 30m -run 'TestAgainstTools|TestGoAddr2line' ./internal/symbols/symbolize

.PHONY: generate
generate: deps-generate ## Rebuild the BPF objects and their Go bindings with clang-19
	$(GO) generate ./bpf

.PHONY: check-generate
check-generate: generate ## Fail if the committed BPF objects differ from the output of generate
	git diff --exit-code --stat -- internal/bpf
	@new=$$(git ls-files --others --exclude-standard -- internal/bpf); \
	if [ -n "$$new" ]; then echo "not committed: $$new" >&2; exit 1; fi

.PHONY: lint
lint: deps-lint $(GOLANGCI) ## Check Go with golangci-lint, C with clang-format, shell with shellcheck
	$(GO) mod tidy -diff
	$(GO) -C packaging mod tidy -diff
	$(GOLANGCI) run ./...
	cd packaging && $(CURDIR)/$(GOLANGCI) run ./...
	$(if $(C_SOURCES),clang-format-19 --dry-run -Werror $(C_SOURCES))
	shellcheck $(SH_SOURCES)

# A golangci-lint of the right version that is already installed saves
# minutes of building one.
$(GOLANGCI):
	@mkdir -p $(@D)
	@if golangci-lint version 2>/dev/null | grep -qF ' $(GOLANGCI_VERSION:v%=%) '; then \
		ln -sf "$$(command -v golangci-lint)" $@; \
	else \
		GOBIN=$(CURDIR)/$(@D) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) && \
		mv $(@D)/golangci-lint $@; \
	fi

.PHONY: bench
bench: deps-test ## Compare cost and completeness with perf, bpftrace and bcc
	$(GO) run ./bench
	$(GO) run ./bench/unwind
	$(GO) run ./bench/symbols
	$(GO) run ./bench/addresses
	$(GO) run ./bench/switches
	$(GO) run ./bench/requests
	$(GO) run ./bench/faults
	$(GO) run ./bench/alloc

.PHONY: bench-quick
bench-quick: deps-test ## Measure the aims of docs/cost.md once, in three to five minutes
	$(GO) run ./bench -rounds 1 -seconds 4 -growth 0 -tools fulgur,fulgur-auto,fulgur-agent,perf,bcc -scenarios system-4999,pid-99,pid-4999,churn-19,churn-999

.PHONY: bench-bolt
bench-bolt: deps-test deps-bench ## Measure how much faster llvm-bolt makes sqlite, Lua and redis with each kind of profile
	$(GO) run ./bench/bolt

.PHONY: bench-bolt-cost
bench-bolt-cost: deps-test deps-bench ## Compare the cost of branch profiles with perf record -b and ebpf-bolt's design
	$(GO) run ./bench/boltcost

FUZZTIME ?= 10s

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (10s)
	@grep -rlE --include='*_test.go' '^func Fuzz' bpf cmd internal test | xargs -r -n 1 dirname | sort -u | while read -r dir; do \
		for f in $$($(GO) test -list '^Fuzz' "./$$dir" | grep '^Fuzz'); do \
			echo "$$dir $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "./$$dir" || exit 1; \
		done; \
	done

.PHONY: deps-test deps-vm deps-arm64 deps-symbols deps-bench deps-generate deps-lint
deps-test deps-vm deps-arm64 deps-symbols deps-bench deps-generate deps-lint: deps-%:
	@test/install-deps.sh $*

.PHONY: clean
clean: ## Remove everything that was built or downloaded
	rm -rf $(BUILD)

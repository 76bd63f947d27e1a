# Skua. GNU make, no configure step.
#   make              build build/skua (and a link ./skua to it)
#   make lib          the library alone, build/libskua.a
#   make tests        the test programs, not run
#   make check        every test (see tests/README.md); check-quick: the unit and end-to-end tests of the plain build
#   make check-full   the full matrix of promise P1 (long)
#   make bench        the programs of bench/, in build/bench
#   make install      PREFIX=/usr/local, DESTDIR=; and uninstall
#   make clean        remove the object folder
# Variables: CC, BUILD (object folder), SAN=1 (address and undefined sanitizers), SAN=thread (data races), LIBFUZZER=1 (fuzz
# targets with their engine), CROSS=1 (for arm64, on Debian), V=1 (show commands).

ifeq ($(CROSS),1)
TOOLS    := aarch64-linux-gnu-
BUILD    ?= build/arm64
PKG      ?= PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig pkg-config
endif
ifeq ($(origin CC),default)
CC       := $(if $(filter 1,$(LIBFUZZER)),clang-14,$(TOOLS)gcc)
endif
AR       := $(TOOLS)ar
BUILD    ?= build
PREFIX   ?= /usr/local
PKG      ?= pkg-config
LIBS     := jansson libutf8proc libxxhash libedit
EVENT    := libevent_core libevent_pthreads

VERSION  := 0.1.0
OPT      ?= -O2
WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wundef -Wvla -Wwrite-strings
CSTD     := -std=c11 -D_GNU_SOURCE -DSKUA_VERSION='"$(VERSION)"'
# -ffp-contract=off: the order and rounding of every operation is part of the product (docs/ARCHITECTURE.md).
FP       := -ffp-contract=off -fno-fast-math
CFLAGS   ?=
LDFLAGS  ?=
SANFLAGS :=
KERNFLAGS :=
ifeq ($(SAN),1)
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
# Programs that run whole models spend nearly all their time in the kernels, and those that quantize in the search for scales: these
# are checked in their own tests only (tests/tests.mk links them with copies that are), which meet each one at its borders.
KERNFLAGS := -fno-sanitize=all
endif
ifeq ($(SAN),thread)
SANFLAGS := -fsanitize=thread -fno-omit-frame-pointer
KERNFLAGS := -fno-sanitize=all
endif
ifeq ($(LIBFUZZER),1)
SANFLAGS := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
# No fuzz target calls a kernel, and clang takes minutes to instrument them.
KERNFLAGS := -fno-sanitize=all
endif

MACHINE  := $(shell $(CC) -dumpmachine)
ARCH     := $(firstword $(subst -, ,$(MACHINE)))
ifeq ($(filter x86_64 amd64,$(ARCH)),)
ifneq ($(filter aarch64 arm64,$(ARCH)),)
CPUDIR   := arm
endif
else
CPUDIR   := x86
endif

PKG_CFLAGS := $(shell $(PKG) --cflags $(LIBS) $(if $(filter 1,$(CROSS)),,$(EVENT)) 2>/dev/null)
PKG_LIBS   := $(shell $(PKG) --libs $(LIBS) 2>/dev/null)
# Debian has libevent's development files for one architecture at a time: another one's library is linked by its file name.
ifeq ($(CROSS),1)
EVENT_LIBS := -l:libevent_core-2.1.so.7 -l:libevent_pthreads-2.1.so.7
else
EVENT_LIBS := $(shell $(PKG) --libs $(EVENT) 2>/dev/null)
endif

# Without the libraries only goals that compile nothing can be made.
ifeq ($(and $(PKG_LIBS),$(EVENT_LIBS)),)
ifneq ($(filter-out clean uninstall,$(or $(MAKECMDGOALS),all)),)
$(error $(PKG) does not find all of $(LIBS) $(EVENT); tools/setup.sh installs them)
endif
endif

ALLC     := $(CSTD) -Iinclude -Isrc $(OPT) -g $(WARN) $(FP) -fno-strict-aliasing -pthread $(PKG_CFLAGS) $(SANFLAGS) $(CFLAGS)
ALLLD    := $(SANFLAGS) -pthread $(LDFLAGS)
ALLLIBS  := $(PKG_LIBS) $(EVENT_LIBS) -lm

# Kernel files carry their instruction set in their name; only these may be compiled for more than the base machine.
# They get line numbers only (-g1): with all their inlining, full debug information takes longer than the code. And gcc 12 takes
# a loop's address that it writes as 0 + index for a null pointer, thus its stores for unreachable and the function for pure, and
# drops calls of it; no null pointer is special with the second flag.
VECFLAGS       := -g1 -fno-delete-null-pointer-checks
ISA_avx2       := -mavx2 -mfma -mf16c -mbmi2
ISA_avxvnni    := $(ISA_avx2) -mavxvnni
ISA_avx512     := -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni
ISA_neon       :=
ISA_dotprod    := -march=armv8.2-a+dotprod
ISA_i8mm       := -march=armv8.2-a+dotprod+i8mm
x86_ISAS := avx2 avxvnni avx512 avx512vnni
arm_ISAS := neon dotprod i8mm

LIBDIRS  := base gguf quant tok jinja convert kern/ref kern dev model sample spec engine http api
LIBSRC   := $(foreach d,$(LIBDIRS),$(wildcard src/$(d)/*.c))
CPUSRC   := $(foreach d,src/kern/cpu src/quant/cpu,$(wildcard $(d)/dispatch.c) $(foreach i,$($(CPUDIR)_ISAS),$(wildcard $(d)/*_$(i).c)))
CMDSRC   := $(wildcard src/cmd/*.c)
LIBOBJ   := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(LIBSRC) $(CPUSRC))
CMDOBJ   := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(CMDSRC))

ifneq ($(V),1)
Q := @
endif

.PHONY: all lib bench clean install uninstall
all: $(BUILD)/skua
	$(Q)ln -sf $(BUILD)/skua skua

lib: $(BUILD)/libskua.a

$(BUILD)/skua: $(CMDOBJ) $(BUILD)/libskua.a
	@echo "  LD    $@"
	$(Q)$(CC) $(ALLLD) -o $@ $(CMDOBJ) $(BUILD)/libskua.a $(ALLLIBS)

$(BUILD)/libskua.a: $(LIBOBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# What everything here was compiled with: a change of compiler or flags rebuilds it.
export SKUA_BUILD_FLAGS := $(CC) $(ALLC) $(VECFLAGS) $(KERNFLAGS) $(ALLLD)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' "$$SKUA_BUILD_FLAGS" | cmp -s - $@ || printf '%s\n' "$$SKUA_BUILD_FLAGS" >$@
.PHONY: FORCE # without this .SECONDARY would take it for a file that nobody misses
FORCE:

isa_of = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))
o3_of = $(if $(findstring src/kern/ref/scalar_,$(1))$(findstring src/quant/dequant_,$(1)),-O3)
is_kernel = $(filter src/kern/ref/%.c src/kern/cpu/%.c src/quant/%.c,$(1))
file_flags = $(if $(findstring /cpu/,$(1)),$(VECFLAGS) $(call isa_of,$(1))) $(if $(call is_kernel,$(1)),$(KERNFLAGS)) $(call o3_of,$(1))
$(BUILD)/obj/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALLC) $(call file_flags,$<) -MMD -MP -c -o $@ $<
# The same with the sanitizers; only with SAN=1. What is left out doubles the time to compile and tells little of a kernel that the
# check of addresses does not.
$(BUILD)/checked/%.o: KERNFLAGS := -fno-sanitize=null,alignment,object-size,pointer-overflow
$(BUILD)/checked/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $< (sanitized)"
	$(Q)$(CC) $(ALLC) $(call file_flags,$<) -MMD -MP -c -o $@ $<

# The chat page is part of the program.
$(BUILD)/obj/cmd/serve_web.o: $(wildcard src/web/*)

include tests/tests.mk

bench: $(BUILD)/skua $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
$(BUILD)/bench/%: bench/%.c $(BUILD)/libskua.a
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALLC) $(ALLLD) -MMD -MP -o $@ $< $(BUILD)/libskua.a $(ALLLIBS)

install: $(BUILD)/skua lib
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/share/skua
	install -m 755 $(BUILD)/skua $(DESTDIR)$(PREFIX)/bin/skua
	install -m 644 include/skua.h $(DESTDIR)$(PREFIX)/include/skua.h
	install -m 644 $(BUILD)/libskua.a $(DESTDIR)$(PREFIX)/lib/libskua.a
	install -m 644 models/tiny-q8_0.gguf $(DESTDIR)$(PREFIX)/share/skua/tiny-q8_0.gguf

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/skua $(DESTDIR)$(PREFIX)/include/skua.h $(DESTDIR)$(PREFIX)/lib/libskua.a
	rm -rf $(DESTDIR)$(PREFIX)/share/skua

clean:
	rm -rf $(BUILD) skua

-include $(shell find $(BUILD)/obj $(BUILD)/checked $(BUILD)/tests -name '*.d' 2>/dev/null)

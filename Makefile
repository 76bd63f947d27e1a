# Skua. GNU make, no configure step.
#   make              build build/skua (and a link ./skua to it)
#   make check        every test of this machine (see tests/README.md)
#   make check-full   the full matrix of promise P1 (long)
#   make install      PREFIX=/usr/local
# Variables: CC, BUILD (object folder), SAN=1 (address and undefined sanitizers), CROSS=1 (arm64), V=1 (show commands).

CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
BUILD    ?= build
PREFIX   ?= /usr/local
PKG      ?= pkg-config
LIBS     := jansson libutf8proc libxxhash libedit

VERSION  := 0.1.0
OPT      ?= -O2
WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wundef -Wvla -Wwrite-strings
CSTD     := -std=c11 -D_GNU_SOURCE -DSKUA_VERSION='"$(VERSION)"'
# -ffp-contract=off: the order and rounding of every operation is part of the product (docs/ARCHITECTURE.md).
FP       := -ffp-contract=off -fno-fast-math
CFLAGS   ?=
LDFLAGS  ?=
SANFLAGS :=
ifeq ($(SAN),1)
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g
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

PKG_CFLAGS := $(shell $(PKG) --cflags $(LIBS) 2>/dev/null)
PKG_LIBS   := $(shell $(PKG) --libs $(LIBS) 2>/dev/null)

ALLC     := $(CSTD) -Iinclude -Isrc $(OPT) -g $(WARN) $(FP) -fno-strict-aliasing -pthread $(PKG_CFLAGS) $(SANFLAGS) $(CFLAGS)
ALLLD    := $(SANFLAGS) -pthread $(LDFLAGS)
ALLLIBS  := $(PKG_LIBS) -lm

# Kernel files carry their instruction set in their name; only these may be compiled for more than the base machine.
ISA_avx2       := -mavx2 -mfma -mf16c -mbmi2
ISA_avx512     := -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni
ISA_neon       :=
ISA_dotprod    := -march=armv8.2-a+dotprod+fp16
x86_ISAS := avx2 avx512 avx512vnni
arm_ISAS := neon dotprod

LIBDIRS  := base gguf quant tok jinja kern/ref kern dev model sample spec engine
LIBSRC   := $(foreach d,$(LIBDIRS),$(wildcard src/$(d)/*.c))
CPUSRC   := $(wildcard src/kern/cpu/dispatch.c) $(foreach i,$($(CPUDIR)_ISAS),$(wildcard src/kern/cpu/*_$(i).c))
CMDSRC   := $(wildcard src/cmd/*.c)
LIBOBJ   := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(LIBSRC) $(CPUSRC))
CMDOBJ   := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(CMDSRC))

ifneq ($(V),1)
Q := @
endif

.PHONY: all lib clean install uninstall
all: $(BUILD)/skua
	$(Q)ln -sf $(BUILD)/skua skua

lib: $(BUILD)/libskua.a

$(BUILD)/skua: $(CMDOBJ) $(BUILD)/libskua.a
	@echo "  LD    $@"
	$(Q)$(CC) $(ALLLD) -o $@ $(CMDOBJ) $(BUILD)/libskua.a $(ALLLIBS)

$(BUILD)/libskua.a: $(LIBOBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

isa_of = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))
$(BUILD)/obj/%.o: src/%.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALLC) $(if $(findstring src/kern/cpu/,$<),$(call isa_of,$<)) $(if $(findstring src/kern/ref/scalar_,$<),-O3) -MMD -MP -c -o $@ $<

include tests/tests.mk

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/skua $(DESTDIR)$(PREFIX)/include
	install -m 755 $(BUILD)/skua $(DESTDIR)$(PREFIX)/bin/skua
	install -m 644 include/skua.h $(DESTDIR)$(PREFIX)/include/skua.h
	install -m 644 models/tiny-q8_0.gguf $(DESTDIR)$(PREFIX)/share/skua/tiny-q8_0.gguf

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/skua $(DESTDIR)$(PREFIX)/include/skua.h
	rm -rf $(DESTDIR)$(PREFIX)/share/skua

clean:
	rm -rf $(BUILD) skua

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

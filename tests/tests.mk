# Test binaries. Each tests/<kind>/test_*.c is one program; tests/support/*.c is linked into all of them.
# A test program exits 0 only if all its checks passed and at least one ran, or all were skipped for want of data.

TEST_SUPPORT := $(patsubst tests/%.c,$(BUILD)/tests/%.o,$(wildcard tests/support/*.c))
UNIT_BIN  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
KERN_BIN  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/kern/test_*.c))
MODEL_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/model/test_*.c tests/golden/test_*.c tests/fault/test_*.c))
FUZZ_BIN  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
TEST_LIBS := -lcmocka $(if $(wildcard /usr/include/pcre2.h),-lpcre2-8)

$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALLC) -Itests -MMD -MP -c -o $@ $<

$(UNIT_BIN) $(KERN_BIN) $(MODEL_BIN): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_SUPPORT) $(BUILD)/libskua.a
	@echo "  LD    $@"
	$(Q)$(CC) $(ALLLD) -o $@ $< $(TEST_SUPPORT) $(TEST_ARCHIVES) $(BUILD)/libskua.a $(TEST_LIBS) $(ALLLIBS)

# Under sanitizers, tests of kernels bring their own kernels, which come before the library's.
ifeq ($(SAN),1)
CHECKED_KERNELS := $(patsubst src/%.c,$(BUILD)/checked/%.o,$(call is_kernel,$(LIBSRC) $(CPUSRC)))
CHECKED_TESTS := $(KERN_BIN) $(filter $(BUILD)/tests/unit/test_quant%,$(UNIT_BIN))
$(CHECKED_TESTS): $(CHECKED_KERNELS)
$(CHECKED_TESTS): TEST_ARCHIVES := $(CHECKED_KERNELS)
endif

# tests/unit/test_cmd_*.c test helpers of src/cmd: every object there but main and the commands themselves (cmd_*.c).
CMD_HELPERS := $(filter-out $(BUILD)/obj/cmd/main.o $(BUILD)/obj/cmd/cmd_%,$(CMDOBJ))
$(BUILD)/libcmd.a: $(CMD_HELPERS)
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $^
CMD_TESTS := $(filter $(BUILD)/tests/unit/test_cmd_%,$(UNIT_BIN))
$(CMD_TESTS): $(BUILD)/libcmd.a
$(CMD_TESTS): TEST_ARCHIVES := $(BUILD)/libcmd.a

# tests/fault/test_*.c run whole commands inside the test: everything of src/cmd but main, and what they share.
FAULT_TESTS := $(filter $(BUILD)/tests/fault/test_%,$(MODEL_BIN))
FAULT_PARTS := $(BUILD)/tests/fault/sweep.o $(BUILD)/tests/fault/command.o $(filter $(BUILD)/obj/cmd/cmd_%,$(CMDOBJ)) $(BUILD)/libcmd.a
$(FAULT_TESTS): $(FAULT_PARTS)
$(FAULT_TESTS): TEST_ARCHIVES := $(FAULT_PARTS)

# Fuzz targets define LLVMFuzzerTestOneInput; by default they get a main that replays the files and folders named on the command line.
$(FUZZ_BIN): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/tests/fuzz/replay_main.o $(BUILD)/libskua.a
	@echo "  LD    $@"
	$(Q)$(CC) $(ALLLD) -o $@ $< $(if $(filter 1,$(LIBFUZZER)),-fsanitize=fuzzer,$(BUILD)/tests/fuzz/replay_main.o) $(BUILD)/libskua.a $(ALLLIBS)

.PHONY: tests check check-quick check-full
.SECONDARY:
tests: $(UNIT_BIN) $(KERN_BIN) $(MODEL_BIN) $(FUZZ_BIN)

# The runner starts its own makes, with its own settings; it keeps their objects under BUILD. ARGS: see tests/run.sh.
RUNNER := env -u MAKEFLAGS -u MAKELEVEL -u CC -u SAN -u CROSS -u OPT -u CFLAGS -u LDFLAGS BUILD=$(BUILD) bash tests/run.sh
check:
	$(Q)$(RUNNER) $(ARGS)

check-quick:
	$(Q)$(RUNNER) --quick $(ARGS)

check-full:
	$(Q)$(RUNNER) --full $(ARGS)

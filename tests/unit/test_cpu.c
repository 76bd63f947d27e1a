/* base/cpu: flags against what the kernel reports, cores under an affinity mask, the description cut to every size. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "support/support.h"

/* Every flag that is set is a word of the flags line of /proc/cpuinfo, where there is one. */
static void test_flags(void **unused)
{
    (void)unused;
    const uint32_t flags = cpu_flags();
    CHECK(flags == cpu_flags(), "the same twice");
#if defined(__aarch64__)
    CHECK(flags & CPU_NEON, "NEON is always there on arm64");
#endif
#if defined(__x86_64__) && defined(__linux__)
    static const struct {
        uint32_t flag;
        const char *word;
    } words[] = {{CPU_FMA, " fma"},           {CPU_F16C, " f16c"},         {CPU_BMI2, " bmi2"},
                 {CPU_AVX2, " avx2"},         {CPU_AVX512F, " avx512f"},   {CPU_AVX512BW, " avx512bw"},
                 {CPU_AVX512VL, " avx512vl"}, {CPU_AVX512DQ, " avx512dq"}, {CPU_AVX512VNNI, " avx512_vnni"}};
    char *text;
    size_t size;
    assert_int_equal(file_read_all("/proc/cpuinfo", 64 << 20, &text, &size, NULL), 0);
    char *line = strstr(text, "\nflags"), *end = line ? strchr(line + 1, '\n') : NULL;
    assert_non_null(end);
    *end = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *at = line;
        bool listed = false;
        for (size_t len = strlen(words[i].word); (at = strstr(at, words[i].word)) != NULL && !listed; at += len)
            listed = at[len] == ' ' || at[len] == '\0';
        CHECK(listed == ((flags & words[i].flag) != 0), "flag%s: the kernel says %d", words[i].word, listed);
    }
    mem_free(text);
#endif
}

static void test_cores(void **unused)
{
    (void)unused;
    const int cores = cpu_physical_cores();
    CHECK(cores >= 1 && cores <= (int)sysconf(_SC_NPROCESSORS_ONLN), "%d cores", cores);
    /* Files that cannot be read make the answer coarser, not wrong. */
    for (uint64_t n = 1; n < 40; n++) {
        fault_set_io(n, false);
        const int coarse = cpu_physical_cores();
        fault_set_io(0, false);
        fault_set_alloc(n, false);
        const int no_memory = cpu_physical_cores();
        fault_set_alloc(0, false);
        CHECK(coarse >= 1 && coarse <= (int)sysconf(_SC_NPROCESSORS_ONLN), "%d cores without files", coarse);
        CHECK(no_memory >= 1 && no_memory <= (int)sysconf(_SC_NPROCESSORS_ONLN), "%d cores without memory", no_memory);
    }
#if defined(__linux__)
    cpu_set_t old, one;
    if (sched_getaffinity(0, sizeof old, &old) != 0)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &old))
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0)
        CHECK(cpu_physical_cores() == 1, "one CPU is one core");
    sched_setaffinity(0, sizeof old, &old);
#endif
}

static void test_memory(void **unused)
{
    (void)unused;
    const uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    CHECK(cpu_memory_available() <= most, "%" PRIu64 " bytes of %" PRIu64, cpu_memory_available(), most);
#if defined(__linux__)
    CHECK(cpu_memory_available() > 0, "unknown");
    fault_set_io(1, false);
    CHECK(cpu_memory_available() == 0, "without files");
    fault_set_io(0, false);
    for (uint64_t n = 1; n < 9; n++) { /* a limit that cannot be read is none; the rest is unknown or right */
        fault_set_alloc(n, false);
        CHECK(cpu_memory_available() <= most, "without memory");
        fault_set_alloc(0, false);
    }
#endif
}

static void test_description(void **unused)
{
    (void)unused;
    char full[512], cut[512];
    cpu_describe(full, sizeof full);
    printf("%s\n", full);
    CHECK(strstr(full, " core") != NULL && strchr(full, '\n') == NULL, "\"%s\"", full);
    for (size_t size = 1; size <= strlen(full) + 1; size++) {
        memset(cut, 'x', sizeof cut);
        cpu_describe(cut, size);
        CHECK(strlen(cut) == size - 1 && memcmp(cut, full, size - 1) == 0, "cut to %zu bytes", size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_description),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return support_finish("test_cpu") || failed;
}

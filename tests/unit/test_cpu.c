/* base/cpu: flags against what the kernel reports, cores under an affinity mask, the description cut to every size. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

#if defined(__linux__)

/* A file of a system under `root`; its folders are made. */
static void put(const char *root, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* A system with n CPUs, two to a core: CPU i and i + n / 2, or neighbours. */
static void put_cpus(const char *root, int n, bool neighbours)
{
    for (int cpu = 0; cpu < n; cpu++) {
        char name[128], list[32];
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        snprintf(list, sizeof list, neighbours ? "%d-%d\n" : "%d,%d\n", neighbours ? cpu / 2 * 2 : cpu % (n / 2),
                 neighbours ? cpu / 2 * 2 + 1 : cpu % (n / 2) + n / 2);
        put(root, name, list);
    }
}

static int cores_of(const char *root, int n, const char *mask)
{
    bool may_use[64] = {false};
    for (int cpu = 0; cpu < n; cpu++)
        may_use[cpu] = mask[cpu] == '1';
    return cpu_cores_under(root, may_use, n);
}

static const char *new_root(void)
{
    static int n;
    char name[32];
    snprintf(name, sizeof name, "root%d", n++);
    const char *root = support_temp(name);
    assert_int_equal(mkdir(root, 0700), 0);
    return root;
}

static void remove_root(const char *root)
{
    char command[1100];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0, "%s", command);
}

static void test_siblings(void **unused)
{
    (void)unused;
    static const struct {
        const char *mask;
        int apart, neighbours; /* cores */
    } cases[] = {{"11111111", 4, 4}, {"11110000", 4, 2}, {"00001111", 4, 2}, {"11001100", 2, 2}, {"10101010", 2, 4},
                 {"10001000", 1, 2}, {"00000001", 1, 1}, {"01111110", 4, 4}, {"00000000", 1, 1}};
    const char *bare = new_root();
    CHECK(cores_of(bare, 8, "01110000") == 3, "without files every CPU counts");
    remove_root(bare);
    for (int neighbours = 0; neighbours < 2; neighbours++) {
        const char *root = new_root();
        put_cpus(root, 8, neighbours);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            const int want = neighbours ? cases[i].neighbours : cases[i].apart, got = cores_of(root, 8, cases[i].mask);
            CHECK(got == want, "mask %s, %s: %d cores, wanted %d", cases[i].mask, neighbours ? "neighbours" : "apart", got, want);
        }
        remove_root(root);
    }
}

static void test_quotas(void **unused)
{
    (void)unused;
    static const struct {
        const char *cgroup, *file[4], *text[4];
        int cores;
    } cases[] = {
        {"0::/\n", {"cpu.max"}, {"max 100000\n"}, 4},
        {"0::/\n", {"cpu.max"}, {"200000 100000\n"}, 2},
        {"0::/\n", {"cpu.max"}, {"150000 100000\n"}, 2},
        {"0::/\n", {"cpu.max"}, {"100 100000\n"}, 1},
        {"0::/\n", {"cpu.max"}, {"900000 100000\n"}, 4},
        {"0::/\n", {"cpu.max"}, {"garbage\n"}, 4},
        {"0::/\n", {"cpu.max"}, {""}, 4},
        {"0::/a/b\n", {"a/b/cpu.max", "a/cpu.max"}, {"max 100000\n", "300000 100000\n"}, 3}, /* a parent's */
        {"0::/a/b\n", {"a/b/cpu.max", "a/cpu.max"}, {"100000 100000\n", "300000 100000\n"}, 1},
        {"0::/not/mounted\n", {"cpu.max"}, {"100000 50000\n"}, 2}, /* in a container: the mount's root */
        {"4:memory:/x\n3:cpu,cpuacct:/x\n0::/\n", {"cpu/x/cpu.cfs_quota_us", "cpu/x/cpu.cfs_period_us"}, {"200000\n", "100000\n"}, 2},
        {"3:cpu,cpuacct:/\n", {"cpu,cpuacct/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_period_us"}, {"100000\n", "100000\n"}, 1},
        {"3:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us", "cpu/x/cpu.cfs_period_us"}, {"-1\n", "100000\n"}, 4},
        {"3:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us"}, {"100000\n"}, 4},
        {"3:cpuset:/x\n", {"cpu/x/cpu.cfs_quota_us", "cpu/x/cpu.cfs_period_us"}, {"100000\n", "100000\n"}, 4},
        {"nonsense\n::\n:", {"cpu.max"}, {"max\n"}, 4},
        {"", {"cpu.max"}, {"100000 100000\n"}, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *root = new_root();
        put_cpus(root, 8, false);
        put(root, "proc/self/cgroup", cases[i].cgroup);
        for (int k = 0; k < 4 && cases[i].file[k]; k++) {
            char name[128];
            snprintf(name, sizeof name, "sys/fs/cgroup/%s", cases[i].file[k]);
            put(root, name, cases[i].text[k]);
        }
        const int got = cores_of(root, 8, "11111111");
        CHECK(got == cases[i].cores, "quota case %zu: %d cores, wanted %d", i, got, cases[i].cores);
        remove_root(root);
    }
}

#endif

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
#if defined(__linux__)
        cmocka_unit_test(test_siblings),
        cmocka_unit_test(test_quotas),
#endif
        cmocka_unit_test(test_description),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return support_finish("test_cpu") || failed;
}

/* CPU features, usable cores and a description. Nothing is cached: the callers ask once. A file under /proc or /sys that
   cannot be read only makes the answer coarser. */
#include "base/cpu.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

static const struct {
    uint32_t flag;
    const char *name;
} flag_names[] = {
    {CPU_FMA, "fma"},           {CPU_F16C, "f16c"},         {CPU_BMI2, "bmi2"},         {CPU_AVX2, "avx2"},
    {CPU_AVX512F, "avx512f"},   {CPU_AVX512BW, "avx512bw"}, {CPU_AVX512VL, "avx512vl"}, {CPU_AVX512DQ, "avx512dq"},
    {CPU_AVX512VNNI, "avx512vnni"}, {CPU_AVXVNNI, "avxvnni"}, {CPU_NEON, "neon"},     {CPU_DOTPROD, "dotprod"},   {CPU_FP16, "fp16"},
    {CPU_I8MM, "i8mm"},
};

/* ---- instruction sets ---- */

#if defined(__x86_64__)

static uint64_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

uint32_t cpu_flags(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
        return 0;
    const uint64_t xcr0 = read_xcr0();
    if ((xcr0 & 0x6) != 0x6) /* xmm and ymm state */
        return 0;
    uint32_t flags = (c & bit_FMA ? CPU_FMA : 0) | (c & bit_F16C ? CPU_F16C : 0);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return flags;
    unsigned last = a, a1, b1, c1, d1; /* last: highest subleaf of leaf 7 */
    flags |= (b & bit_BMI2 ? CPU_BMI2 : 0) | (b & bit_AVX2 ? CPU_AVX2 : 0);
    if (last >= 1 && __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1))
        flags |= a1 & bit_AVXVNNI ? CPU_AVXVNNI : 0;
    if ((xcr0 & 0xE0) != 0xE0 || !(b & bit_AVX512F)) /* mask registers, upper halves, zmm16..31 */
        return flags;
    flags |= CPU_AVX512F | (b & bit_AVX512BW ? CPU_AVX512BW : 0) | (b & bit_AVX512VL ? CPU_AVX512VL : 0);
    flags |= (b & bit_AVX512DQ ? CPU_AVX512DQ : 0) | (c & bit_AVX512VNNI ? CPU_AVX512VNNI : 0);
    return flags;
}

#elif defined(__aarch64__)

uint32_t cpu_flags(void)
{
    uint32_t flags = CPU_NEON; /* part of the base architecture */
#if defined(__linux__)
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    flags |= (hwcap & HWCAP_ASIMDDP ? CPU_DOTPROD : 0) | (hwcap & HWCAP_ASIMDHP ? CPU_FP16 : 0);
    flags |= hwcap2 & HWCAP2_I8MM ? CPU_I8MM : 0;
#elif defined(__APPLE__)
    static const struct {
        const char *key;
        uint32_t flag;
    } keys[] = {{"hw.optional.arm.FEAT_DotProd", CPU_DOTPROD},
                {"hw.optional.arm.FEAT_FP16", CPU_FP16},
                {"hw.optional.arm.FEAT_I8MM", CPU_I8MM}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int value = 0;
        size_t size = sizeof value;
        if (sysctlbyname(keys[i].key, &value, &size, NULL, 0) == 0 && value)
            flags |= keys[i].flag;
    }
#endif
    return flags;
}

#else

uint32_t cpu_flags(void)
{
    return 0;
}

#endif

/* ---- cores ---- */

#if defined(__linux__)

/* The whole of a small text file, or NULL; free with mem_free. */
static char *read_text(const char *path)
{
    char *data;
    size_t size;
    return file_read_all(path, 1 << 20, &data, &size, NULL) == 0 ? data : NULL;
}

static long read_long(const char *path, long fallback)
{
    char *text = read_text(path);
    if (!text)
        return fallback;
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text)
        value = fallback;
    mem_free(text);
    return value;
}

/* CPUs that a quota of quota_us per period_us allows, rounded up; 0 = no limit. */
static long quota_cpus(long quota_us, long period_us)
{
    return quota_us > 0 && period_us > 0 ? (quota_us - 1) / period_us + 1 : 0;
}

/* The quota of one group folder, in either version's files; 0 = none. */
static long group_quota(const char *mount, const char *group)
{
    char path[1024];
    if (snprintf(path, sizeof path, "%s%s/cpu.max", mount, group) >= (int)sizeof path)
        return 0;
    char *text = read_text(path);
    if (text) { /* version 2: "QUOTA PERIOD" or "max PERIOD" */
        long quota = 0, period = 0;
        if (sscanf(text, "%ld %ld", &quota, &period) != 2)
            quota = 0;
        mem_free(text);
        return quota_cpus(quota, period);
    }
    if (snprintf(path, sizeof path, "%s%s/cpu.cfs_quota_us", mount, group) >= (int)sizeof path)
        return 0;
    long quota = read_long(path, 0);
    if (quota <= 0)
        return 0;
    if (snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", mount, group) >= (int)sizeof path)
        return 0;
    return quota_cpus(quota, read_long(path, 0));
}

/* The least quota of a group and all its parents; 0 = none. Inside a container the path may name folders that are not
   mounted there; the mount's root then carries the container's own limit. */
static long group_chain_quota(const char *mount, const char *group)
{
    char path[512];
    long least = 0;
    if (snprintf(path, sizeof path, "%s", group) >= (int)sizeof path)
        return group_quota(mount, "");
    for (;;) {
        char *slash = strrchr(path, '/');
        if (slash && slash[1] == '\0')
            *slash = '\0'; /* the root is written "/" */
        long quota = group_quota(mount, path);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        slash = strrchr(path, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

static bool has_word(const char *list, const char *word)
{
    const size_t len = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, len) == 0 && (at[len] == '\0' || at[len] == ','))
            return true;
    }
    return false;
}

/* Where the folders of a cgroup line lie. Version 2 has no controllers; version 1 mounts "cpu" under its own name or together with
   the accounting. */
static long line_quota(const char *root, const char *controllers, const char *group)
{
    static const char *const v1[] = {"cpu", "cpu,cpuacct", "cpuacct,cpu"};
    char mount[512];
    long least = 0;
    if (*controllers == '\0') {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        return group_chain_quota(mount, group);
    }
    for (size_t i = 0; i < sizeof v1 / sizeof v1[0] && least == 0 && has_word(controllers, "cpu"); i++) {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, v1[i]);
        least = group_chain_quota(mount, group);
    }
    return least;
}

/* A line of /proc/self/cgroup is ID:CONTROLLERS:PATH. */
static long cgroup_quota(const char *root)
{
    char path[512];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    char *text = read_text(path);
    long least = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        next = next ? next : line + strlen(line);
        if (*next)
            *next++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        long quota = line_quota(root, controllers + 1, group);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
    }
    mem_free(text);
    return least;
}

/* Hyperthreads of one core name the same CPU first in their lists of siblings. */
static long first_sibling(const char *root, int cpu)
{
    char path[512];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
    return read_long(path, cpu);
}

int cpu_cores_under(const char *root, const bool *may_use, int n_cpus)
{
    int cores = 0;
    for (int cpu = 0; cpu < n_cpus; cpu++) {
        if (!may_use[cpu])
            continue;
        const long first = first_sibling(root, cpu);
        bool known = false;
        for (int other = first > 0 ? (int)first : 0; other < cpu && !known; other++)
            known = may_use[other] && first_sibling(root, other) == first;
        cores += !known;
    }
    const long quota = cgroup_quota(root);
    cores = quota > 0 && quota < cores ? (int)quota : cores;
    return cores > 0 ? cores : 1;
}

uint64_t cpu_memory_available(void)
{
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    char *text = read_text("/proc/meminfo");
    const char *line = text ? strstr(text, "MemAvailable:") : NULL;
    uint64_t bytes = line ? strtoull(line + strlen("MemAvailable:"), NULL, 10) << 10 : 0;
    mem_free(text);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const long limit = read_long(limits[i], 0); /* 0 for "max", too */
        if (limit > 0 && (uint64_t)limit < bytes)
            bytes = (uint64_t)limit;
    }
    return bytes;
}

int cpu_physical_cores(void)
{
    static const int most = CPU_SETSIZE;
    bool may_use[CPU_SETSIZE];
    cpu_set_t set;
    CPU_ZERO(&set);
    const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    const long online = sysconf(_SC_NPROCESSORS_ONLN); /* instead: more CPUs than the mask holds, or a refusal */
    for (int cpu = 0; cpu < most; cpu++)
        may_use[cpu] = known ? CPU_ISSET(cpu, &set) : cpu < online;
    return cpu_cores_under("", may_use, most);
}

#elif defined(__APPLE__)

uint64_t cpu_memory_available(void) { return 0; }

int cpu_physical_cores(void)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname("hw.physicalcpu", &value, &size, NULL, 0) == 0 && value > 0 ? value : 1;
}

#else

uint64_t cpu_memory_available(void) { return 0; }

int cpu_physical_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 && n < 65536 ? (int)n : 1;
}

#endif

/* ---- description ---- */

static void cpu_name(char name[64])
{
    snprintf(name, 64, "%s", "unknown CPU");
#if defined(__x86_64__)
    unsigned r[12];
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]))
            return;
    char brand[49];
    memcpy(brand, r, 48);
    brand[48] = '\0';
    const char *start = brand + strspn(brand, " ");
    size_t len = strlen(start);
    while (len > 0 && start[len - 1] == ' ')
        len--;
    if (len > 0)
        snprintf(name, 64, "%.*s", (int)len, start);
#elif defined(__APPLE__)
    size_t size = 64;
    if (sysctlbyname("machdep.cpu.brand_string", name, &size, NULL, 0) != 0)
        snprintf(name, 64, "%s", "Apple CPU");
#elif defined(__aarch64__)
    snprintf(name, 64, "%s", "arm64 CPU");
#endif
}

void cpu_describe(char *buf, size_t size)
{
    char name[64];
    cpu_name(name);
    const int cores = cpu_physical_cores();
    const uint32_t flags = cpu_flags();
    int n = snprintf(buf, size, "%s, %d core%s%s", name, cores, cores == 1 ? "" : "s", flags ? "," : "");
    for (size_t i = 0; i < sizeof flag_names / sizeof flag_names[0]; i++)
        if ((flags & flag_names[i].flag) && n >= 0 && (size_t)n < size)
            n += snprintf(buf + n, size - (size_t)n, " %s", flag_names[i].name);
}

/* What the CPU and the operating system offer: vector instruction sets, cores, a description for reports. */
#ifndef SKUA_BASE_CPU_H
#define SKUA_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Flags are set only when both the CPU has the instructions and the operating system saves the registers. */
enum {
    CPU_FMA = 1 << 0, /* x86 */
    CPU_F16C = 1 << 1,
    CPU_BMI2 = 1 << 2,
    CPU_AVX2 = 1 << 3,
    CPU_AVX512F = 1 << 4,
    CPU_AVX512BW = 1 << 5,
    CPU_AVX512VL = 1 << 6,
    CPU_AVX512DQ = 1 << 7,
    CPU_AVX512VNNI = 1 << 8,
    CPU_AVXVNNI = 1 << 9,
    CPU_NEON = 1 << 16, /* arm64 */
    CPU_DOTPROD = 1 << 17,
    CPU_FP16 = 1 << 18, /* half precision arithmetic (FEAT_FP16) */
    CPU_I8MM = 1 << 19
};

/* The flags of the machine it runs on, found out once. */
uint32_t cpu_flags(void);

/* Physical cores that this process may use: those its affinity mask touches, at most the CPU quota of its control groups
   rounded up; hyperthreads of one core count once. At least 1. */
int cpu_physical_cores(void);

/* What it would find on a Linux system whose /proc and /sys lie under the folder root, for a process that may use the CPUs marked in
   may_use. */
int cpu_cores_under(const char *root, const bool *may_use, int n_cpus);

/* Bytes of memory that can be had without pushing anything out: what the system says is available, at most the limit of the control group.
   0: unknown. */
uint64_t cpu_memory_available(void);

/* "Intel(R) Xeon(R) Processor, 2 cores, fma f16c bmi2 avx2": one line, cut to fit size, zero-terminated (size >= 1). */
void cpu_describe(char *buf, size_t size);

/* A hint for the body of a waiting loop. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif

/* The choice of the build of the kernels, when the library is loaded: the last one in the list whose instructions
 * the CPU has and the kernel saves. The compilers' __builtin_cpu_supports would need their run-time libraries. */
#include "wirespeed.h"

#include <string.h>

#define DECLARE(build)                                                                                               \
    extern const struct ws_kernels ws_kernels_##build;                                                               \
    extern const struct ws_contents ws_contents_##build;
#define BUILD(build) {&ws_kernels_##build, &ws_contents_##build}

struct build {
    const struct ws_kernels *kernels;
    const struct ws_contents *contents;
};

#if defined(__x86_64__)
#include <cpuid.h>
DECLARE(sse2)
DECLARE(avx2)
DECLARE(avx512)
static const struct build BUILDS[] = {BUILD(sse2), BUILD(avx2), BUILD(avx512)};

/* The number of builds that this CPU can run. */
static int supported(void) {
    unsigned a, b, c, d, state, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA))
        return 1;
    __asm__("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    /* Bits of XCR0: SSE and AVX state (6); opmask, upper halves and upper registers of AVX-512 (0xe0). */
    if ((state & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return 1;
    return (state & 0xe0) == 0xe0 && b & bit_AVX512F && b & bit_AVX512DQ ? 3 : 2;
}
#elif defined(__aarch64__)
DECLARE(neon)
static const struct build BUILDS[] = {BUILD(neon)};
static int supported(void) { return 1; }
#else
DECLARE(plain)
static const struct build BUILDS[] = {BUILD(plain)};
static int supported(void) { return 1; }
#endif

static const struct build *chosen = BUILDS;

__attribute__((constructor)) static void choose(void) { chosen = &BUILDS[supported() - 1]; }

const struct ws_kernels *ws_kernels(void) { return chosen->kernels; }

const struct ws_contents *ws_contents(void) { return chosen->contents; }

WS_EXPORT const char *ws_build(void);
WS_EXPORT int32_t ws_choose(const char *name);

/* The name of the chosen build. */
const char *ws_build(void) { return chosen->kernels->name; }

/* Choose a build by its name, for tests; whether this CPU can run it. No other thread may measure. */
int32_t ws_choose(const char *name) {
    for (int i = 0; i < supported(); i++)
        if (strcmp(BUILDS[i].kernels->name, name) == 0) {
            chosen = &BUILDS[i];
            return 1;
        }
    return 0;
}

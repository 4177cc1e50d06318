// AArch64: vectors are part of the baseline, and so is float16 conversion.
#if defined(__aarch64__)
#define RINGCOMM_ISA neon
#define RINGCOMM_VECTOR_BYTES 16
#define RINGCOMM_NEON
#include "kernels/body/body.inl"
#endif

// Compiles the kernels for AArch64. Its baseline includes vectors and float16 conversion.
#if defined(__aarch64__)
#define RINGCOMM_ISA neon
#define RINGCOMM_VECTOR_BYTES 16
#define RINGCOMM_NEON
#include "kernels/body/body.inl"
#endif

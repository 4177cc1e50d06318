// Compiles the kernels for x86-64 with AVX2 and F16C, with those flags (instruction_sets.cmake).
#if defined(__x86_64__) && defined(__AVX2__) && defined(__F16C__)
#define RINGCOMM_ISA avx2
#define RINGCOMM_VECTOR_BYTES 32
#include "kernels/body/body.inl"
#endif

// Compiles the kernels for x86-64 with AVX-512 F, BW, DQ and VL, with those flags
// (instruction_sets.cmake).
#if defined(__x86_64__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#define RINGCOMM_ISA avx512
#define RINGCOMM_VECTOR_BYTES 64
#include "kernels/body/body.inl"
#endif

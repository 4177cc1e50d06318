// Compiles the kernels for the baseline of any architecture: 16-byte vectors, float16 in software.
#define RINGCOMM_ISA generic
#define RINGCOMM_VECTOR_BYTES 16
#include "kernels/body/body.inl"

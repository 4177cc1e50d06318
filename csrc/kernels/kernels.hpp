// Arithmetic on arrays: op × dtype × scale. The instruction set is picked once, at first use; every one gives the
// same bits. Halves are computed in float32 and rounded (to nearest even) when stored. min and max propagate NaN (the
// first operand's if both are, bits unchanged) and order -0 < +0. A NaN that sum, product or scaling yields is the
// positive quiet one without payload: which operand's NaN an addition keeps differs between machines and compilers. A
// cast keeps a NaN's sign and leading payload. Copies, and a reduction of one source that is not scaled, keep all bits.
// Booleans are logical: sum and max are or, product and min are and; any byte but 0 is true; stored as 0 or 1;
// scaling leaves them as they are. Integer sums and products wrap. Pointers need the alignment of nothing.
// Complex numbers are added and scaled by component; a product is (ar br - ai bi, ar bi + ai br), each term rounded.
// Logical ops of integers take any number but 0 for true, and give 0 or 1. minloc and maxloc take the pair of the least
// or largest value, and of equal values (-0 equals +0) that of the lower index; a NaN wins over numbers, and a pair's
// padding comes out as zeros.
// No function allocates or throws after dispatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/scale.hpp"
#include "base/types.hpp"

namespace ringcomm::kernels {

// Scale: x -> x * factor / divisor, in this order. Floating: in float32 for halves and float32, float64 in itself; the
// product and the quotient are each rounded correctly (a factor of 1 leaves one rounding, that of the quotient), or
// both together once where factor / divisor is a number of that dtype.
// Integers: trunc(double(x) * factor) unless factor is 1, held to the dtype's range (NaN gives 0), then divided by
// divisor, rounding toward zero, exactly.

// Whether there is such an element op of such elements: all else below holds for those only.
bool reduces(DType dtype, Op op);

// target[i] = first[i] op second[i] of an element op; target may be either operand. Op::average counts as sum.
void reduce(DType dtype, Op op, void* target, const void* first, const void* second, std::size_t count);

// Floating dtypes: target = (1 - a.b / 2|a|²) a + (1 - a.b / 2|b|²) b for the vectors a, first, and b, second: their
// sum if they are orthogonal, their mean if they are equal; a vector of zeros adds nothing. Products are summed in
// float64, which is also what the result is rounded from. The same bits with the operands exchanged.
// Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv:2006.02924.
void adasum(DType dtype, void* target, const void* first, const void* second, std::size_t count);

// target[i] = scale(source[i]); target may be source.
void scale(DType dtype, void* target, const void* source, std::size_t count, Scale by);

// For each i: post(pre(sources[0][i]) op pre(sources[1][i]) op ... in this order), stored into every target.
// One pass (of an element op): each source is read once, each target written once; halves stay float32 throughout.
// Targets may be sources (same index range). `stream` asks for stores past the cache,
// done where every target has the same offset in its cache line; it pays for large targets that are not sources.
void reduce_many(DType dtype, Op op, std::span<void* const> targets, std::span<const void* const> sources,
                 std::size_t count, Scale pre, Scale post, bool stream = false);

// target[i] = source[i] in another floating dtype (float16, bfloat16, float32, float64 in any pair).
void cast(DType to, void* target, DType from, const void* source, std::size_t count);

// Whether the processor's instruction that copies strings, which memcpy and the kernel use, is slow (AMD's takes 5 to
// 14 times as long): where the two are not apart by whole words of 16 bytes.
inline bool slow_to_copy(const void* target, const void* source) {
  return (reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source)) % 16 != 0;
}

// memcpy (nothing if target is source), and fast wherever they lie; `stream` asks for stores past the cache, which is
// for buffers that nobody reads soon.
void copy(void* target, const void* source, std::size_t nbytes, bool stream = false);

void move(void* target, const void* source, std::size_t nbytes);  // the same where they may overlap

// memcpy from this thread's memory that another core has just written, and that this core will write next: takes the
// source's cache lines over. A line that two cores share costs 7 to 25 ns to write again, one by one; one that is
// owned, by whichever of them, 2 to 5. Nobody else may touch the source meanwhile.
void copy_taking(void* target, void* source, std::size_t nbytes, bool stream = false);

// target[i] = the value e with e op x = x, bit for bit, for every x (but a NaN's payload, a logical op's numbers that
// are not 0 or 1, and infinities and signs of zero in a product of complex numbers): of a sum, -0.
void fill_identity(DType dtype, Op op, void* target, std::size_t count);

std::string_view instruction_set();               // "generic", "avx2", "avx512", "neon"
bool use_instruction_set(std::string_view name);  // for tests; false if this machine lacks it

}  // namespace ringcomm::kernels

// Provides arithmetic on arrays: op × dtype × scale. The instruction set is selected once, at first
// use. Every instruction set gives equal bits. No function allocates, or throws after dispatch.
// Pointers need no alignment.
//
// Floating dtypes: halves are computed in float32 and rounded (to nearest even) when stored. min
// and max propagate NaN with unchanged bits (if both operands are NaN, the first one) and order
// -0 < +0. A NaN result of sum, product or scaling is the positive quiet NaN without payload. The
// reason: machines and compilers differ in which operand's NaN an addition keeps. A cast keeps a
// NaN's sign and leading payload. Copies, and a reduction of one unscaled source, keep all bits.
//
// Booleans are logical: sum and max are or, product and min are and. Any nonzero byte is true;
// results are 0 or 1; scaling does not change them.
//
// Integer sums and products wrap. Logical ops of integers treat any nonzero number as true, and
// return 0 or 1.
//
// Complex numbers are added and scaled by component. A product is (ar br - ai bi, ar bi + ai br),
// each term rounded.
//
// minloc and maxloc select the pair with the least or largest value. Among equal values (-0 equals
// +0) they select the lower index. A NaN wins over numbers. A pair's padding is written as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/scale.hpp"
#include "base/types.hpp"

namespace ringcomm::kernels {

// Scale: x -> x * factor / divisor, in this order. Floating dtypes: halves and float32 are scaled
// in float32, float64 in float64. The product and the quotient are each rounded correctly; with a
// factor of 1 only the quotient is rounded. If the dtype represents factor / divisor exactly, the
// result is rounded only once. Integers: if factor is not 1, x becomes trunc(double(x) * factor),
// clamped to the dtype's range (NaN gives 0). The integer is then divided by divisor in exact
// arithmetic, rounding toward zero.

// Returns true if the op is defined for the dtype. All functions below require that.
bool reduces(DType dtype, Op op);

// Computes target[i] = first[i] op second[i] for any op but adasum; target may be either operand.
// Op::average counts as sum.
void reduce(DType dtype, Op op, void* target, const void* first, const void* second, std::size_t count);

// Computes target = (1 - a.b / 2|a|²) a + (1 - a.b / 2|b|²) b, where a is `first` and b is
// `second`; floating dtypes only. Orthogonal vectors give their sum, equal vectors their mean; a
// zero vector adds nothing. Products are summed in float64, and the result is rounded from float64.
// Exchanging the operands gives the same bits.
// Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv:2006.02924.
void adasum(DType dtype, void* target, const void* first, const void* second, std::size_t count);

// Computes target[i] = scale(source[i]); target may be source.
void scale(DType dtype, void* target, const void* source, std::size_t count, Scale by);

// Stores post(pre(sources[0][i]) op pre(sources[1][i]) op ... in this order) into every target, for
// each i, for any op but adasum. One pass suffices: each source is read once, each target written
// once; halves stay float32 throughout. Targets may be sources (same index range). `stream`
// requests non-temporal stores, which bypass the cache. They are used if every target has the same
// offset in its cache line. They are faster for large targets that are not sources.
void reduce_many(DType dtype, Op op, std::span<void* const> targets, std::span<const void* const> sources,
                 std::size_t count, Scale pre, Scale post, bool stream = false);

// Converts source[i] to another floating dtype (float16, bfloat16, float32, float64 in any pair).
void cast(DType to, void* target, DType from, const void* source, std::size_t count);

// Returns true if the processor's string copy instruction, which memcpy and the OS kernel use, is
// slow. On AMD it takes 5 to 14 times as long if the addresses do not differ by a multiple of 16
// bytes.
inline bool slow_to_copy(const void* target, const void* source) {
  return (reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source)) % 16 != 0;
}

// Does what memcpy does, and is fast for all alignments. Copies nothing if target is source.
// `stream` requests non-temporal stores, for buffers that are not read soon.
void copy(void* target, const void* source, std::size_t nbytes, bool stream = false);

void move(void* target, const void* source, std::size_t nbytes);  // does what memmove does: memory may overlap

// Copies like copy(), for a source that another core has just written and that this core will write
// next. So this core acquires the source's cache lines: writing a line that two cores share takes 7
// to 25 ns, writing an owned line 2 to 5 ns. No other thread may access the source meanwhile.
void copy_taking(void* target, void* source, std::size_t nbytes, bool stream = false);

// Fills target with the identity e: e op x = x, bit for bit, for every x; for a sum, -0.
// Exceptions: a NaN's payload, a logical op's numbers other than 0 and 1, and infinities and signs
// of zero in a product of complex numbers.
void fill_identity(DType dtype, Op op, void* target, std::size_t count);

std::string_view instruction_set();               // "generic", "avx2", "avx512", "neon"
bool use_instruction_set(std::string_view name);  // for tests; false if this machine lacks it

}  // namespace ringcomm::kernels

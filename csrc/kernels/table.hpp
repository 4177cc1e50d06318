// Defines the table of functions of one instruction set. kernels.cpp cuts the work into passes; a
// table's functions run them.
//
// The functions behind a table are compiled once per instruction set (isa_*.cpp). Code in those
// files and in body/ must not call inline functions of shared headers. The linker keeps one copy of
// each, and that copy may contain instructions that this machine lacks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "kernels/kernels.hpp"
#include "kernels/quantise.hpp"
#include "kernels/rows.hpp"
#include "kernels/update.hpp"

namespace ringcomm::kernels {

// One sweep over elements [first, first + count) of at most 8 sources and at most 8 targets. The
// accumulator starts from `carry_in` if given, else from the first source. It is stored to
// `carry_out` if given, else (scaled by `post`) to the targets.
struct Pass {
  void* const* targets;
  const void* const* sources;
  std::size_t target_count, source_count;
  std::size_t first, count;
  Scale pre, post;      // read by scaled passes only
  bool stream = false;  // every target's element `first` is 64-byte aligned
  const void* carry_in = nullptr;
  void* carry_out = nullptr;  // as wide as the accumulator, kCarryBytes long, 64-byte aligned
};

inline constexpr std::size_t kStreams = 8;        // an L1 cache has 8 ways; page-aligned arrays use the same set
inline constexpr std::size_t kCarryBytes = 8192;  // a quarter of the smallest L1 cache in use

using RunPass = void (*)(const Pass&);
using RunDots = void (*)(const void* first, const void* second, std::size_t count, double dots[3]);  // a.b, a.a, b.b
using RunBlend = void (*)(void* target, const void* first, const void* second, std::size_t count, double by_first,
                          double by_second);  // target = by_first a + by_second b
using RunCast = void (*)(void* target, const void* source, std::size_t count);

// Functions of one dtype. Null where the op is undefined; ops that are never scaled are in both
// columns.
struct Row {
  RunPass plain;        // for one source: keeps all bits
  RunPass pass[12][2];  // [sum, and Op from min on][scaled]
};

struct Table {
  const char* name;
  Row rows[kDTypes.size()];
  RunCast cast[4][4];  // [to][from]: float16, bfloat16, float32, float64; null if equal
  RunDots dots[4];     // the same dtypes
  RunBlend blend[4];
  void (*copy_apart)(void* target, const void* source, std::size_t nbytes);
  void (*copy_stream)(void* target, const void* source, std::size_t nbytes);
  void (*copy_taking)(void* target, void* source, std::size_t nbytes, bool streaming);
  void (*fence)();                              // after streaming stores; null if there are none
  void (*quantise[4])(const QuantiseJob& job);  // by Quantiser
  void (*dequantise[4])(const void* wire, float* block, std::size_t count, bool two_means);
  void (*pick)(SparseJob& job);
  void (*add)(float* target, const float* a, const float* b, std::size_t count);
  void (*sum_rows)(const RowsJob& job);
  void (*project)(const float* row, const float* factors, std::size_t count, std::size_t rank, float* results);
  void (*add_outer)(float* factors, const float* row, std::size_t count, std::size_t rank, const float* weights);
  void (*combine)(float* row, const float* factors, std::size_t count, std::size_t rank, const float* weights);
  void (*update_float)(const UpdateJob<float>& job);
  void (*update_double)(const UpdateJob<double>& job);
};

// Functions that return a table. Each exists on its architecture only.
const Table* generic_table();
const Table* avx2_table();
const Table* avx512_table();
const Table* neon_table();

const Table& table();  // the selected table

// Pairs of a value and an index, in the order of their dtypes. All instruction sets share their
// code (pairs.cpp).
// clang-format off: one row per pair
#define RINGCOMM_PAIRS(one) \
  one(std::int16_t, std::int32_t) \
  one(std::int32_t, std::int32_t) \
  one(std::int64_t, std::int32_t) \
  one(float, std::int32_t) \
  one(double, std::int32_t) \
  one(std::int16_t, std::int64_t) \
  one(std::int32_t, std::int64_t) \
  one(std::int64_t, std::int64_t) \
  one(float, std::int64_t) \
  one(double, std::int64_t)
// clang-format on
template <class Value, class Index, bool least>
void run_pairs(const Pass& pass);

}  // namespace ringcomm::kernels

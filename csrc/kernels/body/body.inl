// Contains the kernels of one instruction set. The including file (isa_*.cpp) defines RINGCOMM_ISA,
// a namespace and the set's name, and RINGCOMM_VECTOR_BYTES. It is compiled with that set's flags.
// Everything except the function that returns the table has internal linkage: see table.hpp.

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(RINGCOMM_NEON)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/table.hpp"

#define INLINE __attribute__((always_inline)) inline
#define NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif
#define RINGCOMM_TEXT_OF(x) #x
#define RINGCOMM_TEXT(x) RINGCOMM_TEXT_OF(x)
#define RINGCOMM_JOINED_OF(x, y) x##y
#define RINGCOMM_JOINED(x, y) RINGCOMM_JOINED_OF(x, y)

// Vectors are only passed between inlined functions, so the calling convention does not matter. The
// compiler evaluates this pragma at the end of the file, so it applies to the complete file.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace ringcomm::kernels::RINGCOMM_ISA {
namespace {

inline constexpr std::size_t kVectorBytes = RINGCOMM_VECTOR_BYTES;

#include "kernels/body/vector.inl"
#include "kernels/body/halves.inl"
#include "kernels/body/lanes.inl"
#include "kernels/body/pass.inl"
#include "kernels/body/cast.inl"
#include "kernels/body/adasum.inl"
#include "kernels/body/way.inl"
#include "kernels/body/quantise.inl"
#include "kernels/body/sparse.inl"
#include "kernels/body/rows.inl"
#include "kernels/body/low_rank.inl"
#include "kernels/body/update.inl"

// Defines a row of the table: a dtype's passes. `Order` is the lane of min and max without scaling.
#define RINGCOMM_ROW(Plain, Order)                                                             \
  {                                                                                            \
    run_bits<Plain::kSize, Kind::either>, {                                                    \
      {run_pass<Plain, Kind::sum, false>, run_pass<Plain, Kind::sum, true>},                   \
      {run_pass<Order, Kind::min, false>, run_pass<Plain, Kind::min, true>},                   \
      {run_pass<Order, Kind::max, false>, run_pass<Plain, Kind::max, true>},                   \
      {run_pass<Plain, Kind::product, false>, run_pass<Plain, Kind::product, true>},           \
    }                                                                                          \
  }
#define RINGCOMM_TWICE(...) {__VA_ARGS__, __VA_ARGS__}
// Integer passes test at run time if they scale. This halves the code; the speed matters little,
// because gradients are not integers.
#define RINGCOMM_PAIR(Lane, kind) RINGCOMM_TWICE(run_pass<Lane, kind, true>)
#define RINGCOMM_BITS(size)                                                                    \
  RINGCOMM_TWICE(run_bits<size, Kind::both>), RINGCOMM_TWICE(run_bits<size, Kind::either>),    \
      RINGCOMM_TWICE(run_bits<size, Kind::one>)
#define RINGCOMM_LOGIC(Lane, kind) RINGCOMM_TWICE(run_pass<Lane, kind, false>)
#define RINGCOMM_LOGICAL(Lane)                                                                 \
  RINGCOMM_LOGIC(Lane, Kind::both), RINGCOMM_LOGIC(Lane, Kind::either), RINGCOMM_LOGIC(Lane, Kind::one)
#define RINGCOMM_INTEGER_ROW(Lane, Unsigned)                                                   \
  {                                                                                            \
    run_bits<Lane::kSize, Kind::either>, {                                                     \
      RINGCOMM_PAIR(Lane, Kind::sum), RINGCOMM_PAIR(Lane, Kind::min),                          \
      RINGCOMM_PAIR(Lane, Kind::max), RINGCOMM_PAIR(Lane, Kind::product),                      \
      RINGCOMM_BITS(Lane::kSize), RINGCOMM_LOGICAL(LogicalLane<Unsigned>)                      \
    }                                                                                          \
  }
#define RINGCOMM_BOOL_ROW(Lane)                                                                \
  {                                                                                            \
    run_pass<Lane, Kind::either, false>, {                                                     \
      RINGCOMM_LOGIC(Lane, Kind::either), RINGCOMM_LOGIC(Lane, Kind::both),                    \
      RINGCOMM_LOGIC(Lane, Kind::either), RINGCOMM_LOGIC(Lane, Kind::both),                    \
      RINGCOMM_LOGICAL(Lane), RINGCOMM_LOGICAL(Lane)                                           \
    }                                                                                          \
  }
#define RINGCOMM_COMPLEX_ROW(Lane)                                                             \
  {                                                                                            \
    run_bits<Lane::kSize, Kind::either>, {                                                     \
      RINGCOMM_PAIR(Lane, Kind::sum), {}, {}, RINGCOMM_PAIR(Lane, Kind::product)               \
    }                                                                                          \
  }
#define RINGCOMM_PAIR_ROW(Value, Index)                                                        \
  {                                                                                            \
    run_bits<2 * (sizeof(Value) > sizeof(Index) ? sizeof(Value) : sizeof(Index)), Kind::either>, { \
      {}, {}, {}, {}, {}, {}, {}, {}, {}, {},                                                  \
      RINGCOMM_TWICE(run_pairs<Value, Index, true>), RINGCOMM_TWICE(run_pairs<Value, Index, false>) \
    }                                                                                          \
  },
using Signed8 = IntegerLane<std::int8_t, std::uint8_t>;
using Signed16 = IntegerLane<std::int16_t, std::uint16_t>;
using Signed32 = IntegerLane<std::int32_t, std::uint32_t>;
using Signed64 = IntegerLane<std::int64_t, std::uint64_t>;
using Unsigned8 = IntegerLane<std::uint8_t, std::uint8_t>;
using Unsigned16 = IntegerLane<std::uint16_t, std::uint16_t>;
using Unsigned32 = IntegerLane<std::uint32_t, std::uint32_t>;
using Unsigned64 = IntegerLane<std::uint64_t, std::uint64_t>;
using Half = HalfLane<Float16>;
using Brain = HalfLane<BFloat16>;
using Single = FloatLane<float>;
using Double = FloatLane<double>;
using HalfCast = HalfFormat<Float16>;
using BrainCast = HalfFormat<BFloat16>;
using SingleCast = FloatFormat<float>;
using DoubleCast = FloatFormat<double>;

constexpr Table kTable = {
    RINGCOMM_TEXT(RINGCOMM_ISA),
    {
        RINGCOMM_ROW(Half, HalfBitsLane<Float16>),
        RINGCOMM_ROW(Brain, HalfBitsLane<BFloat16>),
        RINGCOMM_ROW(Single, Single),
        RINGCOMM_ROW(Double, Double),
        RINGCOMM_INTEGER_ROW(Signed8, std::uint8_t),
        RINGCOMM_INTEGER_ROW(Signed16, std::uint16_t),
        RINGCOMM_INTEGER_ROW(Signed32, std::uint32_t),
        RINGCOMM_INTEGER_ROW(Signed64, std::uint64_t),
        RINGCOMM_INTEGER_ROW(Unsigned8, std::uint8_t),
        RINGCOMM_INTEGER_ROW(Unsigned16, std::uint16_t),
        RINGCOMM_INTEGER_ROW(Unsigned32, std::uint32_t),
        RINGCOMM_INTEGER_ROW(Unsigned64, std::uint64_t),
        RINGCOMM_BOOL_ROW(LogicalLane<std::uint8_t>),
        RINGCOMM_COMPLEX_ROW(ComplexLane<float>),
        RINGCOMM_COMPLEX_ROW(ComplexLane<double>),
        RINGCOMM_PAIRS(RINGCOMM_PAIR_ROW)
    },
    {
        {nullptr, cast_all<HalfCast, BrainCast>, cast_all<HalfCast, SingleCast>, cast_all<HalfCast, DoubleCast>},
        {cast_all<BrainCast, HalfCast>, nullptr, cast_all<BrainCast, SingleCast>, cast_all<BrainCast, DoubleCast>},
        {cast_all<SingleCast, HalfCast>, cast_all<SingleCast, BrainCast>, nullptr, cast_all<SingleCast, DoubleCast>},
        {cast_all<DoubleCast, HalfCast>, cast_all<DoubleCast, BrainCast>, cast_all<DoubleCast, SingleCast>, nullptr},
    },
    {dots_of<HalfCast>, dots_of<BrainCast>, dots_of<SingleCast>, dots_of<DoubleCast>},
    {blend<HalfCast>, blend<BrainCast>, blend<SingleCast>, blend<DoubleCast>},
    copy_apart,
    copy_stream,
    copy_taking,
    fence,
    {quantise_group<16, quantise_integers<127>>, quantise_group<32, quantise_integers<7>>,
     quantise_group<512, quantise_signs>, quantise_group<512, quantise_ternary>},
    {dequantise_bytes, dequantise_nibbles, dequantise_signs, dequantise_ternary},
    pick,
    add,
    sum_rows,
    project,
    add_outer,
    combine,
    run_update<float>,
    run_update<double>,
};

}  // namespace
}  // namespace ringcomm::kernels::RINGCOMM_ISA

namespace ringcomm::kernels {
const Table* RINGCOMM_JOINED(RINGCOMM_ISA, _table)() { return &RINGCOMM_ISA::kTable; }
}  // namespace ringcomm::kernels

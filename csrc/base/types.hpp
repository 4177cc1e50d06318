// Defines element types, reduction ops and collectives, which every layer uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringcomm {

enum class DType : std::uint8_t {
  float16,
  bfloat16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,
  complex64,
  complex128,
  // A value and its index, in the layout of a C struct of both: element types of minloc and maxloc.
  int16_int32,
  int32_int32,
  int64_int32,
  float32_int32,
  float64_int32,
  int16_int64,
  int32_int64,
  int64_int64,
  float32_int64,
  float64_int64,
};

struct DTypeInfo {
  std::string_view name;
  std::size_t size;  // bytes of one element
  bool floating;     // a real number
};

// One row per DType, in its order. A new dtype needs a row here and one in the kernels' table.
inline constexpr std::array<DTypeInfo, 25> kDTypes{{
    {"float16", 2, true},
    {"bfloat16", 2, true},
    {"float32", 4, true},
    {"float64", 8, true},
    {"int8", 1, false},
    {"int16", 2, false},
    {"int32", 4, false},
    {"int64", 8, false},
    {"uint8", 1, false},
    {"uint16", 2, false},
    {"uint32", 4, false},
    {"uint64", 8, false},
    {"bool", 1, false},
    {"complex64", 8, false},
    {"complex128", 16, false},
    {"(int16, int32)", 8, false},
    {"(int32, int32)", 8, false},
    {"(int64, int32)", 16, false},
    {"(float32, int32)", 8, false},
    {"(float64, int32)", 16, false},
    {"(int16, int64)", 16, false},
    {"(int32, int64)", 16, false},
    {"(int64, int64)", 16, false},
    {"(float32, int64)", 16, false},
    {"(float64, int64)", 16, false},
}};

inline constexpr std::size_t kNumbers = 13;  // the first kNumbers dtypes consist of one number

inline constexpr const DTypeInfo& info(DType d) { return kDTypes[static_cast<std::size_t>(d)]; }
inline constexpr std::size_t size_of(DType d) { return info(d).size; }

// The reduction op of a call. `average` is the sum, divided by the number of ranks. `adasum`
// reduces complete vectors, not elements: an all-reduce composed of pairs (adasum.hpp). The values
// up to product are Horovod's, for scripts and option files that write numbers. The others are
// MPI's further ops, and are never scaled. The kernels' table defines which op supports which dtype
// (kernels::reduces).
enum class Op : std::uint8_t {
  average,
  sum,
  adasum,
  min,
  max,
  product,
  band,
  bor,
  bxor,
  land,
  lor,
  lxor,
  minloc,
  maxloc
};
inline constexpr std::array<std::string_view, 14> kOpNames{"average", "sum",  "adasum", "min",   "max",
                                                           "product", "band", "bor",    "bxor",  "land",
                                                           "lor",     "lxor", "minloc", "maxloc"};
inline constexpr std::array kElementOps{Op::average, Op::sum, Op::min, Op::max,
                                        Op::product};                 // defined for dtypes of one number
inline constexpr bool is_scaled(Op op) { return op <= Op::product; }  // accepts factors
inline constexpr bool is_logical(Op op) { return op >= Op::land && op <= Op::lxor; }
inline constexpr std::string_view name_of(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }

enum class Collective : std::uint8_t {
  allreduce,
  reduce,
  broadcast,
  allgather,
  reducescatter,
  alltoall,
  barrier,
  scan,
  exscan
};
inline constexpr std::array<std::string_view, 9> kCollectiveNames{
    "allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "barrier", "scan", "exscan"};
// Scans: each rank's result combines the inputs of the ranks up to it, in rank order. An exscan
// excludes the rank's own input, and rank 0 has no result.
inline constexpr bool is_scan(Collective c) { return c == Collective::scan || c == Collective::exscan; }
// Collectives in which contributions may be combined on the route to their destination.
inline constexpr bool merges(Collective c) {
  return c == Collective::allreduce || c == Collective::reduce || c == Collective::reducescatter;
}
inline constexpr bool computes(Collective c) { return merges(c) || is_scan(c); }  // else it only moves bytes
// Collectives in which all ranks end with the same data, which must be bitwise identical.
inline constexpr bool has_identical_results(Collective c) {
  return c == Collective::allreduce || c == Collective::allgather || c == Collective::broadcast;
}
inline constexpr bool has_root(Collective c) { return c == Collective::broadcast || c == Collective::reduce; }
inline constexpr bool has_blocks(Collective c) {  // the array has one block per rank, of any size
  return c == Collective::allgather || c == Collective::reducescatter || c == Collective::alltoall;
}
// Each rank publishes its own number of rows, which may differ between ranks.
inline constexpr bool has_rows_per_rank(Collective c) {
  return c == Collective::allgather || c == Collective::alltoall;
}
inline constexpr std::string_view name_of(Collective c) { return kCollectiveNames[static_cast<std::size_t>(c)]; }

}  // namespace ringcomm

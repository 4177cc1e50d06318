// Sums of sparse tables for _sparse.pxi, with types that Cython can pass.
#pragma once

#include <cstdint>
#include <string>

#include "codecs/sparse_tables.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline void add_packed(SparseTables& tables, const std::string& operation, std::uintptr_t blocks, std::size_t nbytes) {
  tables.add_packed(operation, {reinterpret_cast<const std::byte*>(blocks), nbytes});
}
inline void pack(SparseTables& tables, std::size_t owners, int rank, std::uintptr_t out) {
  tables.pack(owners, rank, reinterpret_cast<std::byte*>(out));
}
}  // namespace ringcomm_border

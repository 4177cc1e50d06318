// Kernels for _kernels.pxi, with types that Cython can pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline void reduce_many(DType dtype, Op op, std::vector<std::uintptr_t>& targets, std::vector<std::uintptr_t>& sources,
                        std::size_t count, kernels::Scale pre, kernels::Scale post, bool stream) {
  kernels::reduce_many(dtype, op, {reinterpret_cast<void**>(targets.data()), targets.size()},
                       {reinterpret_cast<const void**>(sources.data()), sources.size()}, count, pre, post, stream);
}
inline kernels::Scale scale(double factor, std::int64_t divisor) { return {factor, divisor}; }
inline std::string instruction_set() { return std::string(kernels::instruction_set()); }
}  // namespace ringcomm_border

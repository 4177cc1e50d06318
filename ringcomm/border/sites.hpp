// Sites of frameworks' graphs (_sites.pxi), in types that Cython passes.
#pragma once

#include "base/aligned_bytes.hpp"
#include "border/errors.hpp"
#include "frameworks/site.hpp"

namespace ringcomm_border {
using namespace ringcomm;
// Never destroyed: a framework's threads may run graphs while the process ends.
inline SiteTable& sites() {
  static auto& table = *new SiteTable;
  return table;
}
inline std::uintptr_t site_functions() { return reinterpret_cast<std::uintptr_t>(sites().functions()); }

// A run for Python, where no library of a framework's does it: results in memory of ours, 64-byte aligned.
struct Given {
  std::uintptr_t data;
  int dtype;
  std::vector<std::int64_t> dims;
};
struct Result {
  std::shared_ptr<std::byte[]> memory;
  std::size_t bytes;
  int dtype;
  std::vector<std::int64_t> dims;
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory.get()); }
};
inline Result& result_at(void* context, int index) {
  auto& results = *static_cast<std::vector<Result>*>(context);
  if (results.size() <= static_cast<std::size_t>(index)) results.resize(static_cast<std::size_t>(index) + 1);
  return results[static_cast<std::size_t>(index)];
}
inline void* allocate_result(void* context, int index, int, int dtype, const std::int64_t* dims, int rank) {
  Result& result = result_at(context, index);
  result.dtype = dtype;
  result.dims.assign(dims, dims + rank);
  result.bytes = size_of(static_cast<DType>(dtype));
  for (const std::int64_t n : result.dims) result.bytes *= static_cast<std::size_t>(n);
  result.memory = aligned_bytes(result.bytes);
  return result.memory.get();
}
inline int adopt_result(void* context, int index, int dtype, const std::int64_t* dims, int rank, void* data,
                        std::size_t bytes, void (*release)(void*), void* owner) {
  std::shared_ptr<std::byte[]> memory(static_cast<std::byte*>(data), [=](std::byte*) { release(owner); });
  result_at(context, index) = {std::move(memory), bytes, dtype, {dims, dims + rank}};
  return 1;
}
inline std::vector<Result> run_site(Site& site, const std::vector<Given>& given) {
  std::vector<ringcomm_array> inputs;
  for (const Given& one : given) {
    inputs.push_back(
        {reinterpret_cast<const void*>(one.data), one.dims.data(), static_cast<int>(one.dims.size()), one.dtype});
  }
  std::vector<Result> results;
  site.run({&results, static_cast<int>(inputs.size()), inputs.data(), allocate_result, adopt_result, nullptr});
  return results;
}
inline void raise_failure(Site& site) { rethrow(site.take_failure()); }
}  // namespace ringcomm_border

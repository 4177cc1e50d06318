// Exports launch.hpp for tests that are written in Python.
#include <cstddef>
#include <cstring>

#include "device/kernels/launch.hpp"

using namespace ringcomm;
using namespace ringcomm::gpu;

namespace {
unsigned give(const Entry& entry, char* name, char* module) {
  std::strcpy(name, entry.name.c_str());
  module[entry.module.copy(module, 31)] = '\0';
  return entry.parts;
}
}  // namespace

extern "C" {

unsigned test_reduce_entry(int dtype, int op, char* name, char* module) {
  return give(reduce_entry(static_cast<DType>(dtype), static_cast<Op>(op)), name, module);
}
unsigned test_pack_entry(int from, int to, char* name, char* module) {
  return give(pack_entry(static_cast<DType>(from), static_cast<DType>(to)), name, module);
}
unsigned test_scale_entry(int dtype, char* name, char* module) {
  return give(scale_entry(static_cast<DType>(dtype)), name, module);
}
void test_scaling(int dtype, double factor, long long divisor, Scaling* out) {
  *out = scaling_of(static_cast<DType>(dtype), {factor, divisor});
}
int test_scaled_in(int from, int to) {
  return static_cast<int>(scaled_in(static_cast<DType>(from), static_cast<DType>(to)));
}
unsigned test_plan_pack(PackParameters* out, const Tensor* tensors, std::size_t count, unsigned size, unsigned blocks) {
  return plan_pack(*out, {tensors, count}, size, blocks);
}
void test_fill_parameters(FillParameters* out, void* destination, std::size_t count, const void* element,
                          unsigned size) {
  *out = fill_parameters(destination, count, element, size);
}
void test_strided_parameters(StridedParameters* out, const void* source, void* destination, const Dimension* dimensions,
                             std::size_t count, unsigned size) {
  *out = strided_parameters(source, destination, {dimensions, count}, size);
}
unsigned test_blocks_for(unsigned long long nbytes, unsigned most) { return blocks_for(nbytes, most); }
}

// Calls the lossy encoders of the selected instruction set, and computes the sizes of their
// messages.
#include "kernels/quantise.hpp"

#include "kernels/table.hpp"

namespace ringcomm::kernels {

void quantise(Quantiser how, const QuantiseJob& job) { table().quantise[static_cast<std::size_t>(how)](job); }

void dequantise(Quantiser how, const void* wire, float* block, std::size_t count, bool two_means) {
  table().dequantise[static_cast<std::size_t>(how)](wire, block, count, two_means);
}

std::size_t quantised_bytes(Quantiser how, std::size_t count, bool two_means) {
  constexpr std::size_t kScale = sizeof(float);
  const std::size_t plane = 4 * ((count + 31) / 32);
  switch (how) {
    case Quantiser::int8:
      return kScale + count;
    case Quantiser::int4:
      return kScale + (count + 1) / 2;
    case Quantiser::sign:
      return (two_means ? 2 : 1) * kScale + plane;
    case Quantiser::ternary:
      return kScale + 2 * plane;
  }
  return 0;
}

void pick(SparseJob& job) { table().pick(job); }

void streamed() {
  if (table().fence) table().fence();
}

void add(float* target, const float* a, const float* b, std::size_t count) { table().add(target, a, b, count); }

}  // namespace ringcomm::kernels

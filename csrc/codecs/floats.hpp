// Presents blocks of any floating dtype as stretches of float32, on which lossy encoders work.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/cuts.hpp"
#include "base/types.hpp"
#include "kernels/kernels.hpp"
#include "kernels/quantise.hpp"

namespace ringcomm {

// Calls work(values, first, count) for stretches of at most `each` elements, and stores the values
// back into the block. Without `reads`, values are undefined before the call.
template <bool reads = true, class Work>
void as_floats(DType data, void* block, std::size_t count, std::size_t each, const Work& work) {
  alignas(64) float values[kernels::kLongestGroup];
  for (std::size_t first = 0; first < count; first += each) {
    const std::size_t n = std::min(each, count - first);
    std::byte* const here = at(block, first * size_of(data));
    float* const floats = data == DType::float32 ? reinterpret_cast<float*>(here) : values;
    if (reads && floats == values) kernels::cast(DType::float32, values, data, here, n);
    work(floats, first, n);
    if (floats == values) kernels::cast(data, here, DType::float32, values, n);
  }
}

// Writes the values that make(values, first, count) computes into the block. reduce_floats()
// combines these values with the contents of the block instead.
template <class Make>
void from_floats(DType data, void* block, std::size_t count, std::size_t each, const Make& make) {
  as_floats<false>(data, block, count, each, make);
}

template <class Make>
void reduce_floats(DType data, Op op, void* block, std::size_t count, std::size_t each, bool incoming_first,
                   const Make& make) {
  alignas(64) float values[kernels::kLongestGroup];
  alignas(64) std::byte incoming[kernels::kLongestGroup * sizeof(double)];
  for (std::size_t first = 0; first < count; first += each) {
    const std::size_t n = std::min(each, count - first);
    std::byte* const here = at(block, first * size_of(data));
    make(values, first, n);
    const void* with = values;
    if (data != DType::float32) {
      kernels::cast(data, incoming, DType::float32, values, n);
      with = incoming;
    }
    kernels::reduce(data, op, here, incoming_first ? with : here, incoming_first ? here : with, n);
  }
}

// The functions below access a single element. Use them if only a few elements of a block are
// needed.
inline float float_at(DType data, const void* block, std::size_t element) {
  float value;
  if (data == DType::float32) return static_cast<const float*>(block)[element];
  kernels::cast(DType::float32, &value, data, at(block, element * size_of(data)), 1);
  return value;
}

inline void put_float(DType data, void* block, std::size_t element, float value) {
  if (data == DType::float32)
    static_cast<float*>(block)[element] = value;
  else
    kernels::cast(data, at(block, element * size_of(data)), DType::float32, &value, 1);
}

inline void add_float(DType data, void* block, std::size_t element, float value) {
  if (data == DType::float32) {
    static_cast<float*>(block)[element] += value;
    return;
  }
  alignas(8) std::byte incoming[sizeof(double)];
  std::byte* const here = at(block, element * size_of(data));
  kernels::cast(data, incoming, DType::float32, &value, 1);
  kernels::reduce(data, Op::sum, here, here, incoming, 1);
}

}  // namespace ringcomm

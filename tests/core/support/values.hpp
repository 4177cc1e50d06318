// Small integers in any dtype, and the expected results of their reductions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/types.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm::testing {

inline std::size_t item(DType dtype) { return size_of(dtype); }

// Stores doubles as any dtype, by the language's conversions; 16-bit floats by kernels::cast.
inline void store(DType dtype, std::vector<std::byte>& out, const std::vector<double>& values) {
  out.resize(values.size() * item(dtype));
  const auto fill = [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = static_cast<T>(values[i]);
      std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
      kernels::cast(dtype, out.data(), DType::float64, values.data(), values.size());
      break;
    case DType::float32:
      fill(float{});
      break;
    case DType::float64:
      fill(double{});
      break;
    case DType::int8:
      fill(std::int8_t{});
      break;
    case DType::int16:
      fill(std::int16_t{});
      break;
    case DType::int32:
      fill(std::int32_t{});
      break;
    case DType::int64:
      fill(std::int64_t{});
      break;
    case DType::uint8:
    case DType::boolean:
      fill(std::uint8_t{});
      break;
    case DType::uint16:
      fill(std::uint16_t{});
      break;
    case DType::uint32:
      fill(std::uint32_t{});
      break;
    case DType::uint64:
      fill(std::uint64_t{});
      break;
    default:  // these tests use no complex numbers or pairs
      throw std::invalid_argument("values.hpp");
  }
}

inline std::vector<double> load(DType dtype, const std::vector<std::byte>& in) {
  std::vector<double> out(in.size() / item(dtype));
  const auto read = [&]<class T>(T) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, in.data() + i * sizeof(T), sizeof(T));
      out[i] = static_cast<double>(value);
    }
  };
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
      kernels::cast(DType::float64, out.data(), dtype, in.data(), out.size());
      break;
    case DType::float32:
      read(float{});
      break;
    case DType::float64:
      read(double{});
      break;
    case DType::int8:
      read(std::int8_t{});
      break;
    case DType::int16:
      read(std::int16_t{});
      break;
    case DType::int32:
      read(std::int32_t{});
      break;
    case DType::int64:
      read(std::int64_t{});
      break;
    case DType::uint8:
    case DType::boolean:
      read(std::uint8_t{});
      break;
    case DType::uint16:
      read(std::uint16_t{});
      break;
    case DType::uint32:
      read(std::uint32_t{});
      break;
    case DType::uint64:
      read(std::uint64_t{});
      break;
    default:  // these tests use no complex numbers or pairs
      throw std::invalid_argument("values.hpp");
  }
  return out;
}

// Returns the rank's element i: a small integer, so that every dtype holds sums and products of
// nine exactly.
inline double given(DType dtype, Op op, int rank, std::size_t i) {
  const std::size_t seed = i * 7 + static_cast<std::size_t>(rank) * 13 + i / 5;
  if (dtype == DType::boolean) return static_cast<double>(seed % 3 == 0);
  if (op == Op::product) return static_cast<double>(rank < 6 ? 1 + seed % 2 : 1);  // at most 2^6, which fits an int8
  return static_cast<double>(seed % 4);
}

// Returns the reduction of the elements of `givers`; averages are over `size` ranks.
inline double expected(DType dtype, Op op, const std::vector<int>& givers, int size, std::size_t i) {
  double result = given(dtype, op, givers[0], i);
  for (std::size_t k = 1; k < givers.size(); ++k) {
    const double next = given(dtype, op, givers[k], i);
    switch (op) {
      case Op::sum:
      case Op::average:
        result += next;
        break;
      case Op::min:
        result = std::min(result, next);
        break;
      case Op::max:
        result = std::max(result, next);
        break;
      case Op::product:
        result *= next;
        break;
      case Op::adasum:
        break;
      default:  // these tests use sums, extremes and products
        throw std::invalid_argument("values.hpp");
    }
  }
  if (dtype == DType::boolean && (op == Op::sum || op == Op::average)) return result > 0;
  if (op == Op::average) {
    result /= size;
    if (!info(dtype).floating) result = std::trunc(result);
  }
  return result;
}

inline double expected(DType dtype, Op op, int size, std::size_t i) {
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(rank);
  return expected(dtype, op, all, size, i);
}

inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return 0x1p-10;
    case DType::bfloat16:
      return 0x1p-7;
    case DType::float32:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

inline bool right(DType dtype, Op op, double got, double want) {
  if (op == Op::average && info(dtype).floating) return std::abs(got - want) <= epsilon(dtype) * std::abs(want);
  // checked for equal bits only, because a mean of booleans has no meaning
  if (dtype == DType::boolean && op == Op::average) return true;
  return got == want;
}

}  // namespace ringcomm::testing

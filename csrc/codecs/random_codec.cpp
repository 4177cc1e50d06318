#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "codecs/floats.hpp"
#include "codecs/sparse_codec.hpp"

namespace ringcomm {
namespace {

// Of each `stride_` elements of a block one: a message is the seed that says which, and their float32 values.
class RandomCodec final : public Codec {
 public:
  RandomCodec(Wire wire, DType data, Feedback* feedback)
      : data_(data), feedback_(feedback),
        stride_(
            std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(1.0 / static_cast<double>(wire.amount))))) {}

  std::size_t capacity(std::size_t count) const override {
    return sizeof(std::uint32_t) + (count + stride_ - 1) / stride_ * sizeof(float);
  }

  std::size_t encode(const CodecKey& key, void* block, std::size_t count, void* wire) override {
    const std::uint32_t seed = key.call * 0x9E3779B1u + static_cast<std::uint32_t>(key.first);
    std::memcpy(wire, &seed, sizeof seed);
    std::byte* const values = at(wire, sizeof seed);
    const std::size_t whole_groups = kernels::kLongestGroup / stride_ * stride_;
    as_floats(data_, block, count, whole_groups, [&](float* block_values, std::size_t first, std::size_t n) {
      const float* const owed = feedback_ ? feedback_->before(key.tensor) + key.first + first : nullptr;
      float held[kernels::kLongestGroup];
      kernels::add(held, block_values, owed, n);
      std::fill_n(block_values, n, 0.0f);
      for (std::size_t done = 0; done < n; done += stride_) {
        const std::size_t group = (first + done) / stride_, chosen = chosen_of(seed, group, count) - first;
        float value = std::exchange(held[chosen], 0.0f);
        for (std::size_t i = done; i < std::min(n, done + stride_); ++i) {
          if (std::isfinite(held[i]) && std::isfinite(value)) continue;
          value = std::numeric_limits<float>::quiet_NaN();  // of which all shall know
          held[i] = owed ? owed[i] : 0;
        }
        std::memcpy(values + group * sizeof value, &value, sizeof value);
        block_values[chosen] = value;
      }
      if (feedback_) std::memcpy(feedback_->after(key.tensor) + key.first + first, held, n * sizeof(float));
    });
    return capacity(count);
  }

  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) override {
    check(nbytes, count);
    std::memset(block, 0, count * size_of(data_));
    each<put_float>(wire, block, count);
  }

  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op, bool) override {
    check(nbytes, count);
    each<add_float>(wire, block, count);
  }

 private:
  std::size_t chosen_of(std::uint32_t seed, std::size_t group, std::size_t count) const {
    std::uint32_t x = static_cast<std::uint32_t>(group) * 0x9E3779B1u ^ seed;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    x ^= x >> 16;
    const std::size_t first = group * stride_;
    return first + x % std::min(stride_, count - first);
  }

  // act(data, block, element, value) for what has come.
  template <auto act>
  void each(const void* wire, void* block, std::size_t count) const {
    std::uint32_t seed;
    std::memcpy(&seed, wire, sizeof seed);
    for (std::size_t group = 0; group * stride_ < count; ++group) {
      float value;
      std::memcpy(&value, at(wire, sizeof seed + group * sizeof value), sizeof value);
      act(data_, block, chosen_of(seed, group, count), value);
    }
  }

  void check(std::size_t nbytes, std::size_t count) const {
    if (nbytes == capacity(count)) return;
    throw Error(ErrorKind::transport, "a block of " + std::to_string(count) +
                                          " elements, some of them drawn, came as " + std::to_string(nbytes) +
                                          " bytes, not " + std::to_string(capacity(count)));
  }

  const DType data_;
  Feedback* const feedback_;  // may be null
  const std::size_t stride_;
};

}  // namespace

std::unique_ptr<Codec> make_random_codec(Wire wire, DType data, Feedback* feedback) {
  return std::make_unique<RandomCodec>(wire, data, feedback);
}

}  // namespace ringcomm

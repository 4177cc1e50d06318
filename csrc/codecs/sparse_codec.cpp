#include "codecs/sparse_codec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "codecs/floats.hpp"

namespace ringcomm {
namespace {

struct Head {
  std::uint32_t entries = 0, gap_bytes = 0;
  float threshold = 0;     // what signs stand for
  std::uint32_t told = 1;  // 0: an infinity or a NaN was there that no entry says: all are NaN
};

[[noreturn]] void refuse(const char* why) {
  throw Error(ErrorKind::transport, std::string("a sparse block came damaged: ") + why);
}

class SparseCodec : public Codec {
 public:
  SparseCodec(Wire wire, DType data, Feedback* feedback, bool signs)
      : wire_(wire), data_(data), feedback_(feedback), signs_(signs),
        value_bytes_(signs                            ? 0
                     : (wire.mode & kHalfValues) != 0 ? 2
                                                      : 4) {}

  std::size_t capacity(std::size_t count) const final {
    const std::size_t entries = most(count), skip = signs_ ? kernels::kSignedSkip : kernels::kSkip;
    return sizeof(Head) + entries * (value_bytes_ + 1) + count / skip + 1;
  }

  std::size_t encode(const CodecKey& key, void* block, std::size_t count, void* wire) final {
    kernels::SparseJob job;
    job.threshold = threshold(key, block, count);
    job.signs = signs_;
    job.halves = value_bytes_ == 2;
    job.most = most(count);
    job.stream = feedback_ && feedback_->large(key.tensor);
    job.values = at(wire, sizeof(Head));
    job.gaps = reinterpret_cast<unsigned char*>(at(wire, sizeof(Head) + job.most * value_bytes_));
    const float* const owed = feedback_ ? feedback_->before(key.tensor) + key.first : nullptr;
    float* const next = feedback_ ? feedback_->after(key.tensor) + key.first : nullptr;
    as_floats(data_, block, count, kernels::kLongestGroup, [&](float* values, std::size_t first, std::size_t n) {
      job.block = values;
      job.count = n;
      job.owed = owed ? owed + first : nullptr;
      job.next = next ? next + first : nullptr;
      kernels::pick(job);
    });
    if (job.stream) kernels::streamed();
    if (!job.told) {
      if (next) std::copy_n(owed, count, next);
      fill_nan(block, count);
    }
    const Head head{static_cast<std::uint32_t>(job.entries), static_cast<std::uint32_t>(job.gap_bytes), job.threshold,
                    job.told ? 1u : 0u};
    std::memcpy(wire, &head, sizeof head);
    const std::size_t behind = sizeof head + job.entries * value_bytes_;
    std::memmove(at(wire, behind), job.gaps, job.gap_bytes);
    return behind + job.gap_bytes;
  }

  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) final {
    std::memset(block, 0, count * size_of(data_));
    each<put_float>(wire, nbytes, block, count);
  }

  // Sums, whatever the op: no other one travels so (call/channel.cpp).
  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op, bool) final {
    each<add_float>(wire, nbytes, block, count);
  }

 protected:
  virtual std::size_t most(std::size_t count) const = 0;  // entries
  virtual float threshold(const CodecKey& key, const void* block, std::size_t count) const = 0;

  // Of an element with what is owed of it.
  float value_of(const CodecKey& key, const void* block, std::size_t element) const {
    const float value = float_at(data_, block, element);
    return feedback_ ? value + feedback_->before(key.tensor)[key.first + element] : value;
  }

  const Wire wire_;
  const DType data_;
  Feedback* const feedback_;  // may be null

 private:
  void fill_nan(void* block, std::size_t count) const {
    from_floats(data_, block, count, kernels::kLongestGroup, [](float* values, std::size_t, std::size_t n) {
      std::fill_n(values, n, std::numeric_limits<float>::quiet_NaN());
    });
  }

  // act(data, block, element, value) for what has come.
  template <auto act>
  void each(const void* wire, std::size_t nbytes, void* block, std::size_t count) const {
    Head head;
    if (nbytes < sizeof head) refuse("it has no head");
    std::memcpy(&head, wire, sizeof head);
    const std::size_t behind = sizeof head + head.entries * value_bytes_;
    if (head.entries > count || behind + head.gap_bytes != nbytes) refuse("its length is not what its head says");
    if (head.told == 0) return fill_nan(block, count);
    const auto* const gaps = reinterpret_cast<const unsigned char*>(at(wire, behind));
    const std::size_t skip = signs_ ? kernels::kSignedSkip : kernels::kSkip;
    std::size_t element = 0, entry = 0;
    for (std::size_t g = 0; g < head.gap_bytes; ++g) {
      const std::size_t gap = signs_ ? gaps[g] & 127u : gaps[g];
      element += gap;
      if (gap == skip) continue;
      if (element >= count || entry == head.entries) refuse("it names more elements than there are");
      const float sent = signs_ ? (gaps[g] > 127 ? -head.threshold : head.threshold) : value(wire, entry);
      act(data_, block, element++, sent);
      ++entry;
    }
    if (entry != head.entries) refuse("it names fewer elements than it has");
  }

  float value(const void* wire, std::size_t entry) const {
    std::uint32_t bits = 0;
    const std::byte* const from = at(wire, sizeof(Head) + entry * value_bytes_);
    if (value_bytes_ == 4) {
      std::memcpy(&bits, from, 4);
    } else {
      std::uint16_t half;
      std::memcpy(&half, from, 2);
      bits = static_cast<std::uint32_t>(half) << 16;
    }
    return std::bit_cast<float>(bits);
  }

  const bool signs_;
  const std::size_t value_bytes_;
};

// Counted by their upper bits first: few of them share the nth's, and only those are put in order.
std::uint32_t nth_largest(std::vector<std::uint32_t>& magnitudes, std::size_t n) {
  constexpr int kLower = 20;
  std::array<std::uint32_t, (0x80000000u >> kLower)> counts{};
  for (const std::uint32_t one : magnitudes) ++counts[one >> kLower];
  std::size_t upper = counts.size() - 1;
  for (; counts[upper] < n; --upper) n -= counts[upper];
  std::erase_if(magnitudes, [upper](std::uint32_t one) { return one >> kLower != upper; });
  const auto nth = magnitudes.begin() + static_cast<std::ptrdiff_t>(n) - 1;
  std::nth_element(magnitudes.begin(), nth, magnitudes.end(), std::greater<>());
  return *nth;
}

class TopCodec final : public SparseCodec {
 public:
  using SparseCodec::SparseCodec;

 private:
  std::size_t wanted(std::size_t count) const {
    return static_cast<std::size_t>(std::ceil(static_cast<double>(wire_.amount) * static_cast<double>(count)));
  }
  // A sample's threshold lets some more through, or fewer. What is too much waits.
  std::size_t most(std::size_t count) const override { return std::min(count, wanted(count) * 5 / 4 + 8); }

  float threshold(const CodecKey& key, const void* block, std::size_t count) const override {
    constexpr std::size_t kSample = 4096;
    const std::size_t stride = std::max<std::size_t>(1, count / kSample);
    std::vector<std::uint32_t> sample;
    sample.reserve(count / stride + 1);
    for (std::size_t i = key.call % stride; i < count; i += stride)
      sample.push_back(std::bit_cast<std::uint32_t>(value_of(key, block, i)) & 0x7FFFFFFFu);
    const auto rank = static_cast<std::size_t>(std::lround(
        static_cast<double>(wanted(count)) * static_cast<double>(sample.size()) / static_cast<double>(count)));
    constexpr std::uint32_t kLargest = 0x7F7FFFFF;  // a finite number; zeros are never sent
    const std::uint32_t nth = nth_largest(sample, std::clamp<std::size_t>(rank, 1, sample.size()));
    return std::bit_cast<float>(std::clamp<std::uint32_t>(nth, 1, kLargest));
  }
};

class ThresholdCodec final : public SparseCodec {
 public:
  ThresholdCodec(Wire wire, DType data, Feedback* feedback) : SparseCodec(wire, data, feedback, true) {}

 private:
  std::size_t most(std::size_t count) const override { return count; }
  float threshold(const CodecKey&, const void*, std::size_t) const override { return wire_.amount; }
};

}  // namespace

std::unique_ptr<Codec> make_top_codec(Wire wire, DType data, Feedback* feedback) {
  return std::make_unique<TopCodec>(wire, data, feedback, false);
}

std::unique_ptr<Codec> make_threshold_codec(Wire wire, DType data, Feedback* feedback) {
  return std::make_unique<ThresholdCodec>(wire, data, feedback);
}

}  // namespace ringcomm

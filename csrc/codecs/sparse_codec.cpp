// Implements the sparsifying codecs: the message format, its decoder, and the choice of thresholds.
#include "codecs/sparse_codec.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "codecs/floats.hpp"

namespace ringcomm {
namespace {

struct Head {
  std::uint32_t entries = 0, gap_bytes = 0;
  float threshold = 0;  // magnitude of an element that is sent as a sign
  std::uint16_t representable =
      1;                  // 0: the block held an infinity or a NaN without an entry: all elements decode to NaN
  std::uint16_t low = 0;  // number of low bits in the code of gaps
};

[[noreturn]] void refuse(const char* why) {
  throw Error(ErrorKind::transport, std::string("a received sparse block is invalid: ") + why);
}

// Reads gaps in the code that SparseJob defines.
class GapReader {
 public:
  GapReader(std::span<const unsigned char> bytes, unsigned low)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()), low_(low) {}
  std::size_t gap() {
    std::size_t ones = 0;
    while (true) {
      fill();
      const auto run = static_cast<unsigned>(std::countr_one(bits_));
      ones += run;
      if (run < count_) {
        drop(run + 1);
        return (ones << low_) + take(low_);
      }
      if (count_ == 0) refuse("it has fewer positions than entries");
      drop(run);
    }
  }
  std::uint32_t take(unsigned count) {  // count: up to 20
    if (count_ < count) fill();
    if (count_ < count) refuse("it has fewer positions than entries");
    const std::uint64_t taken = bits_ & ((std::uint64_t{1} << count) - 1);
    drop(count);
    return static_cast<std::uint32_t>(taken);
  }
  void end() {
    fill();
    if (count_ > 7 || bits_ != 0) refuse("it has more positions than entries");
  }

 private:
  // Loads until bits_ holds at least 32 bits, or no bytes are left.
  void fill() {
    if (count_ >= 32) return;
    if (end_ - next_ >= 4) {
      std::uint32_t more;
      std::memcpy(&more, next_, 4);
      bits_ |= std::uint64_t{more} << count_;
      next_ += 4;
      count_ += 32;
      return;
    }
    for (; next_ < end_; count_ += 8) bits_ |= std::uint64_t{*next_++} << count_;
  }
  void drop(unsigned count) {
    bits_ >>= count;
    count_ -= count;
  }

  const unsigned char *next_, *const end_;
  const unsigned low_;
  std::uint64_t bits_ = 0;  // next bits, lowest first; zero above `count_`
  unsigned count_ = 0;      // below 64
};

class SparseCodec : public Codec {
 public:
  SparseCodec(Wire wire, DType data, Feedback* feedback, bool signs, unsigned most_low)
      : wire_(wire), data_(data), feedback_(feedback), most_low_(most_low), signs_(signs),
        value_bytes_(signs                            ? 0
                     : (wire.mode & kHalfValues) != 0 ? 2
                                                      : 4) {}

  std::size_t capacity(std::size_t count) const final {
    const std::size_t entries = most(count);  // fewer low bits never need more space
    return sizeof(Head) + entries * value_bytes_ + (entries * (most_low_ + 2) + (count >> most_low_)) / 8 + 8;
  }

  std::size_t encode(const CodecKey& key, void* block, std::size_t count, void* wire) final {
    kernels::SparseJob job;
    job.threshold = threshold(key, block, count);
    job.signs = signs_;
    job.halves = value_bytes_ == 2;
    job.most = most(count);
    job.low = low_bits(key, block, count);
    job.stream = feedback_ && feedback_->large(key.tensor);
    job.values = at(wire, sizeof(Head));
    job.gaps = reinterpret_cast<unsigned char*>(at(wire, sizeof(Head) + job.most * value_bytes_));
    const float* const residual = feedback_ ? feedback_->before(key.tensor) + key.first : nullptr;
    float* const next = feedback_ ? feedback_->after(key.tensor) + key.first : nullptr;
    as_floats(data_, block, count, kernels::kLongestGroup, [&](float* values, std::size_t first, std::size_t n) {
      job.block = values;
      job.count = n;
      job.residual = residual ? residual + first : nullptr;
      job.next = next ? next + first : nullptr;
      kernels::pick(job);
    });
    if (job.stream) kernels::streamed();
    std::memcpy(job.gaps + job.gap_bytes, &job.bits, 4);
    job.gap_bytes += (job.bit_count + 7) / 8;
    if (!job.told) {
      if (next) std::copy_n(residual, count, next);
      fill_nan(block, count);
    }
    const Head head{static_cast<std::uint32_t>(job.entries), static_cast<std::uint32_t>(job.gap_bytes), job.threshold,
                    static_cast<std::uint16_t>(job.told ? 1 : 0), static_cast<std::uint16_t>(job.low)};
    std::memcpy(wire, &head, sizeof head);
    const std::size_t behind = sizeof head + job.entries * value_bytes_;
    std::memmove(at(wire, behind), job.gaps, job.gap_bytes);
    return behind + job.gap_bytes;
  }

  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) final {
    std::memset(block, 0, count * size_of(data_));
    each<put_float>(wire, nbytes, block, count);
  }

  // Sums, ignoring the op: these formats are used for sums only (collectives/channel.cpp).
  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op, bool) final {
    each<add_float>(wire, nbytes, block, count);
  }

 protected:
  virtual std::size_t most(std::size_t count) const = 0;  // maximum number of entries
  // Returns the number of low bits in the code of gaps.
  virtual unsigned low_bits(const CodecKey&, const void*, std::size_t) const { return most_low_; }
  virtual float threshold(const CodecKey& key, const void* block, std::size_t count) const = 0;

  // Returns an element plus its residual.
  float value_of(const CodecKey& key, const void* block, std::size_t element) const {
    const float value = float_at(data_, block, element);
    return feedback_ ? value + feedback_->before(key.tensor)[key.first + element] : value;
  }

  std::vector<std::uint32_t> magnitudes_of_some(const CodecKey& key, const void* block, std::size_t count) const {
    constexpr std::size_t kSample = 4096;
    const std::size_t stride = std::max<std::size_t>(1, count / kSample);
    std::vector<std::uint32_t> sample;
    sample.reserve(count / stride + 1);
    for (std::size_t i = key.call % stride; i < count; i += stride)
      sample.push_back(std::bit_cast<std::uint32_t>(value_of(key, block, i)) & 0x7FFFFFFFu);
    return sample;
  }

  const Wire wire_;
  const DType data_;
  Feedback* const feedback_;  // may be null
  const unsigned most_low_;

 private:
  void fill_nan(void* block, std::size_t count) const {
    from_floats(data_, block, count, kernels::kLongestGroup, [](float* values, std::size_t, std::size_t n) {
      std::fill_n(values, n, std::numeric_limits<float>::quiet_NaN());
    });
  }

  // Calls act(data, block, element, value) for each entry of the message.
  template <auto act>
  void each(const void* wire, std::size_t nbytes, void* block, std::size_t count) const {
    Head head;
    if (nbytes < sizeof head) refuse("it has no header");
    std::memcpy(&head, wire, sizeof head);
    const std::size_t behind = sizeof head + head.entries * value_bytes_;
    if (head.entries > count || behind + head.gap_bytes != nbytes) refuse("its length does not match its header");
    if (head.representable == 0) return fill_nan(block, count);
    if (head.low > most_low_) refuse("its positions have an unknown encoding");
    GapReader gaps({reinterpret_cast<const unsigned char*>(at(wire, behind)), head.gap_bytes}, head.low);
    std::size_t element = 0;
    for (std::size_t entry = 0; entry < head.entries; ++entry, ++element) {
      element += gaps.gap();
      if (element >= count) refuse("a position is outside the block");
      act(data_, block, element, !signs_ ? value(wire, entry) : gaps.take(1) == 1 ? -head.threshold : head.threshold);
    }
    gaps.end();
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

// Counts values by their upper bits. Then searches only the few values that share the upper bits of
// the nth.
std::uint32_t nth_largest(std::vector<std::uint32_t>& magnitudes, std::size_t n) {
  constexpr int kLower = 20;
  std::array<std::uint32_t, (0x80000000u >> kLower)> counts{};
  for (const std::uint32_t magnitude : magnitudes) ++counts[magnitude >> kLower];
  std::size_t upper = counts.size() - 1;
  for (; counts[upper] < n; --upper) n -= counts[upper];
  std::erase_if(magnitudes, [upper](std::uint32_t magnitude) { return magnitude >> kLower != upper; });
  const auto nth = magnitudes.begin() + static_cast<std::ptrdiff_t>(n) - 1;
  std::nth_element(magnitudes.begin(), nth, magnitudes.end(), std::greater<>());
  return *nth;
}

class TopCodec final : public SparseCodec {
 public:
  TopCodec(Wire wire, DType data, Feedback* feedback)
      : SparseCodec(wire, data, feedback, false, gap_code(wire.amount).low) {}

 private:
  std::size_t wanted(std::size_t count) const {
    return static_cast<std::size_t>(std::ceil(static_cast<double>(wire_.amount) * static_cast<double>(count)));
  }
  // The threshold is estimated from a sample, so somewhat more or fewer elements than wanted exceed
  // it. The surplus stays in the residual.
  std::size_t most(std::size_t count) const override { return std::min(count, wanted(count) * 5 / 4 + 8); }

  float threshold(const CodecKey& key, const void* block, std::size_t count) const override {
    std::vector<std::uint32_t> sample = magnitudes_of_some(key, block, count);
    const auto rank = static_cast<std::size_t>(std::lround(
        static_cast<double>(wanted(count)) * static_cast<double>(sample.size()) / static_cast<double>(count)));
    constexpr std::uint32_t kLargest = 0x7F7FFFFF;  // the largest finite number; zeros are never sent
    const std::uint32_t nth = nth_largest(sample, std::clamp<std::size_t>(rank, 1, sample.size()));
    return std::bit_cast<float>(std::clamp<std::uint32_t>(nth, 1, kLargest));
  }
};

class ThresholdCodec final : public SparseCodec {
 public:
  // The number of entries is unknown in advance. More than 6 low bits would shorten only messages
  // with few entries, which are short anyway. With 6, about one byte per element is enough even if
  // all elements are entries.
  ThresholdCodec(Wire wire, DType data, Feedback* feedback) : SparseCodec(wire, data, feedback, true, 6) {}

 private:
  std::size_t most(std::size_t count) const override { return count; }
  unsigned low_bits(const CodecKey& key, const void* block, std::size_t count) const override {
    const auto sample = magnitudes_of_some(key, block, count);
    const auto from = std::bit_cast<std::uint32_t>(wire_.amount);
    const auto pass = std::ranges::count_if(sample, [from](std::uint32_t magnitude) { return magnitude >= from; });
    const double share = static_cast<double>(pass) / static_cast<double>(std::max<std::size_t>(1, sample.size()));
    return std::min(most_low_, gap_code(share).low);
  }
  float threshold(const CodecKey&, const void*, std::size_t) const override { return wire_.amount; }
};

}  // namespace

GapCode gap_code(double share) {
  GapCode best{20, std::numeric_limits<double>::infinity()};
  for (unsigned low = 0; low <= 20; ++low) {
    const double longer = std::pow(1 - share, std::ldexp(1, static_cast<int>(low)));  // probability of another 1 bit
    const double bits = low + 1 + longer / (1 - longer);
    if (bits < best.bits) best = {low, bits};
  }
  return best;
}

std::unique_ptr<Codec> make_top_codec(Wire wire, DType data, Feedback* feedback) {
  return std::make_unique<TopCodec>(wire, data, feedback);
}

std::unique_ptr<Codec> make_threshold_codec(Wire wire, DType data, Feedback* feedback) {
  return std::make_unique<ThresholdCodec>(wire, data, feedback);
}

}  // namespace ringcomm

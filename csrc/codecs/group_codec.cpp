// Implements the quantisers as a codec: it splits blocks into groups, and passes residuals and
// seeds to the kernels.
#include "codecs/group_codec.hpp"

#include <string>

#include "base/error.hpp"
#include "codecs/floats.hpp"

namespace ringcomm {
namespace {

class GroupCodec final : public Codec {
  auto maker(const void* wire) const {
    return [this, wire](float* values, std::size_t first, std::size_t n) {
      kernels::dequantise(how_, at(wire, first / wire_.group * group_bytes_), values, n, two_means_);
    };
  }

 public:
  GroupCodec(kernels::Quantiser how, Wire wire, DType data, Feedback* feedback)
      : how_(how), wire_(wire), data_(data), feedback_(feedback), two_means_((wire.mode & kTwoMeans) != 0),
        group_bytes_(bytes(wire.group)) {}

  std::size_t capacity(std::size_t count) const override {
    const std::size_t rest = count % wire_.group;
    return count / wire_.group * group_bytes_ + (rest > 0 ? bytes(rest) : 0);
  }

  std::size_t encode(const CodecKey& key, void* block, std::size_t count, void* wire) override {
    kernels::QuantiseJob job;
    job.amount = wire_.amount;
    job.drawn = (wire_.mode & kDrawn) != 0;
    job.two_means = two_means_;
    job.stream = feedback_ && feedback_->large(key.tensor);
    job.seed = seed_of(key);
    as_floats(data_, block, count, wire_.group, [&](float* values, std::size_t first, std::size_t n) {
      const std::size_t element = key.first + first;
      job.block = values;
      job.count = n;
      job.first = static_cast<std::uint32_t>(element);
      job.wire = at(wire, first / wire_.group * group_bytes_);
      if (feedback_) {
        job.residual = feedback_->before(key.tensor) + element;
        job.next = feedback_->after(key.tensor) + element;
      }
      kernels::quantise(how_, job);
    });
    if (job.stream) kernels::streamed();
    return capacity(count);
  }

  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) override {
    check(nbytes, count);
    from_floats(data_, block, count, wire_.group, maker(wire));
  }

  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                     bool incoming_first) override {
    check(nbytes, count);
    reduce_floats(data_, op, block, count, wire_.group, incoming_first, maker(wire));
  }

 private:
  std::size_t bytes(std::size_t count) const { return kernels::quantised_bytes(how_, count, two_means_); }
  static std::uint32_t seed_of(const CodecKey& key) {
    const std::uint64_t place = key.tensor * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(key.rank);
    const std::uint64_t mixed = (place ^ std::uint64_t{key.call} << 32) * 0xBF58476D1CE4E5B9u;
    return static_cast<std::uint32_t>(mixed >> 32);
  }
  void check(std::size_t nbytes, std::size_t count) const {
    if (nbytes == capacity(count)) return;
    throw Error(ErrorKind::transport, "a received quantised block of " + std::to_string(count) + " elements has " +
                                          std::to_string(nbytes) + " bytes, not " + std::to_string(capacity(count)));
  }

  const kernels::Quantiser how_;
  const Wire wire_;
  const DType data_;
  Feedback* const feedback_;  // may be null
  const bool two_means_;
  const std::size_t group_bytes_;
};

}  // namespace

bool valid_group(Wire wire) {
  return wire.group >= 32 && wire.group <= kernels::kLongestGroup && wire.group % 32 == 0 && wire.amount >= 0 &&
         wire.amount < 100;
}

double group_ratio(kernels::Quantiser how, Wire wire, DType data) {
  if (!info(data).floating) return 1;
  return static_cast<double>(kernels::quantised_bytes(how, wire.group, (wire.mode & kTwoMeans) != 0)) /
         static_cast<double>(wire.group * size_of(data));
}

std::unique_ptr<Codec> make_group_codec(kernels::Quantiser how, Wire wire, DType data, Feedback* feedback) {
  return std::make_unique<GroupCodec>(how, wire, data, feedback);
}

}  // namespace ringcomm

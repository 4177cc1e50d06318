// Lossy encoders, and the encoding of an array by one of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "codecs/wire_format.hpp"
#include "kernels/kernels.hpp"
#include "random.hpp"

namespace ringcomm::testing {

inline constexpr CodecKey kKey{0, 0, 5, 1};

inline Wire with(const char* name, std::uint8_t mode, float amount = -1) {
  Wire wire = find_wire(name);
  wire.mode = mode;
  if (amount >= 0) wire.amount = amount;
  CHECK(known(wire));
  return wire;
}

inline std::vector<Wire> lossy() {
  std::vector<Wire> all;
  for (const WireFormat& format : wire_formats()) {
    if (!format.rounds) all.push_back(find_wire(format.name));
  }
  all.insert(all.end(), {with("int8", 1), with("int4", 1), with("onebit", 2), with("ternary", 1), with("topk", 4, .2f),
                         with("topk", 0, .9f), with("threshold", 0, .8f)});
  return all;
}

inline std::vector<float> normal(std::size_t count, Random& random) {
  std::vector<float> values(count);
  for (float& value : values) {
    const double u = (static_cast<double>(random() >> 11) + 1) * 0x1p-53,
                 v = static_cast<double>(random() >> 11) * 0x1p-53;
    value = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
    if (random() % 50 == 0) value *= 20;
  }
  return values;
}

struct Encoded {
  std::vector<std::byte> wire;
  std::vector<float> left, next, decoded, added;
  bool operator==(const Encoded& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
    };
    return same(wire, other.wire) && same(left, other.left) && same(next, other.next) && same(decoded, other.decoded) &&
           same(added, other.added);
  }
};

inline Encoded encode(Wire wire, std::vector<float> block, const std::vector<float>* residual) {
  const std::size_t count = block.size(), counts[] = {count};
  Feedback feedback(counts);
  if (residual) std::copy(residual->begin(), residual->end(), feedback.residual(0).begin());
  feedback.begin(0, 1);
  const auto codec = make_codec(wire, DType::float32, residual ? &feedback : nullptr);
  Encoded out;
  if (!codec) return out;
  constexpr std::size_t kGuard = 64;
  out.wire.assign(codec->capacity(count) + kGuard, std::byte{0xA5});
  const std::size_t nbytes = count > 0 ? codec->encode(kKey, block.data(), count, out.wire.data()) : 0;
  CHECK(nbytes <= codec->capacity(count));
  for (std::size_t i = codec->capacity(count); i < out.wire.size(); ++i) CHECK(out.wire[i] == std::byte{0xA5});
  out.wire.resize(nbytes);
  out.left = block;
  if (residual) out.next.assign(feedback.after(0), feedback.after(0) + count);
  out.decoded.assign(count, 77);
  out.added.assign(count, 1);
  if (count > 0) {
    codec->decode(out.wire.data(), nbytes, out.decoded.data(), count);
    codec->decode_reduce(out.wire.data(), nbytes, out.added.data(), count, Op::sum, true);
  }
  return out;
}

}  // namespace ringcomm::testing

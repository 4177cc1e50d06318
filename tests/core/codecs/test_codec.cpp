// Tests the cast codec against the kernels' cast and the scalar reference.
#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "check.hpp"
#include "codecs/cast_codec.hpp"
#include "kernel_data.hpp"

using namespace ringcomm;

namespace {

constexpr std::size_t kCounts[] = {0, 1, 7, 511, 512, 513, 1024, 3001};

struct Pair {
  DType data, wire;
};
constexpr Pair kPairs[] = {{DType::float32, DType::float16},
                           {DType::float32, DType::bfloat16},
                           {DType::float64, DType::float16},
                           {DType::float64, DType::bfloat16},
                           {DType::float64, DType::float32}};

template <class Body>
std::optional<ErrorKind> kind_of_error(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

void test_round_trip(Pair pair, std::size_t count, Random& random) {
  const auto codec = make_cast_codec(pair.data, pair.wire);
  Array block(pair.data, count, 3, random), wire(pair.wire, count, 1), back(pair.data, count, 5);
  CHECK(codec->capacity(count) == count * size_of(pair.wire));
  std::vector<std::uint64_t> encoded(count), decoded(count);
  for (std::size_t i = 0; i < count; ++i) {
    encoded[i] = reference::cast(pair.wire, pair.data, block.get(i));
    decoded[i] = reference::cast(pair.data, pair.wire, encoded[i]);
  }
  CHECK(codec->encode({}, block.data(), count, wire.data()) == codec->capacity(count));
  check_equal("encode", pair.wire, wire, encoded);
  check_equal("what it leaves", pair.data, block, decoded);
  codec->decode(wire.data(), codec->capacity(count), back.data(), count);
  check_equal("decode", pair.data, back, decoded);
  // Decoded values pass the wire unchanged: every rank can hold the owner's bits.
  Array again(pair.wire, count, 0);
  codec->encode({}, back.data(), count, again.data());
  check_equal("encode again", pair.wire, again, encoded);
}

void test_decode_reduce(Pair pair, Op op, std::size_t count, bool incoming_first, Random& random) {
  const auto codec = make_cast_codec(pair.data, pair.wire);
  Array block(pair.data, count, 9, random), wire(pair.wire, count, 1, random);
  std::vector<std::uint64_t> want(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t incoming = reference::cast(pair.data, pair.wire, wire.get(i)), own = block.get(i);
    const std::uint64_t both[] = {incoming_first ? incoming : own, incoming_first ? own : incoming};
    want[i] = reference::reduce(pair.data, op, both);
  }
  codec->decode_reduce(wire.data(), codec->capacity(count), block.data(), count, op, incoming_first);
  check_equal(name_of(op), pair.data, block, want);
}

void test_refusals() {
  for (std::size_t d = 0; d < kNumbers; ++d)
    for (std::size_t w = 0; w < kNumbers; ++w) {
      const auto data = static_cast<DType>(d), wire = static_cast<DType>(w);
      const bool good = std::any_of(std::begin(kPairs), std::end(kPairs),
                                    [&](Pair pair) { return pair.data == data && pair.wire == wire; });
      const auto met = kind_of_error([&] { make_cast_codec(data, wire); });
      CHECK(good ? !met.has_value() : met == ErrorKind::invalid);
    }
  const auto codec = make_cast_codec(DType::float32, DType::bfloat16);
  float block[4] = {1, 2, 3, 4};
  std::uint16_t wire[4] = {};
  CHECK(kind_of_error([&] { codec->decode(wire, 6, block, 4); }) == ErrorKind::transport);
  CHECK(kind_of_error([&] { codec->decode_reduce(wire, 10, block, 4, Op::sum, true); }) == ErrorKind::transport);
  CHECK(block[0] == 1 && block[3] == 4);
}

}  // namespace

int main() {
  Random random(7);
  for (const auto name : available_sets()) {
    kernels::use_instruction_set(name);
    for (const Pair pair : kPairs)
      for (const std::size_t count : kCounts) {
        test_round_trip(pair, count, random);
        for (const Op op : kElementOps)
          for (const bool incoming_first : {false, true}) test_decode_reduce(pair, op, count, incoming_first, random);
      }
  }
  test_refusals();
  return 0;
}

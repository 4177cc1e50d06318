// Tests bytes that no encoder makes: a decoder writes into its block only, or throws.
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/error.hpp"
#include "codecs/sparse_codec.hpp"
#include "lossy_encoders.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

constexpr std::size_t kCount = 1500, kGuard = 64;
constexpr DType kData[] = {DType::float32, DType::float16, DType::bfloat16, DType::float64};

// Returns whether both decoders accept the message. Neither reads past the message (checked by
// ASan), nor writes past the block.
bool taken(Codec& codec, DType data, const std::vector<std::byte>& message, std::size_t count = kCount) {
  const std::vector<std::byte> exact(message);  // no spare room after it
  int times = 0;
  for (const bool adds : {false, true}) {
    std::vector<std::byte> block(count * size_of(data) + kGuard);
    std::fill(block.end() - kGuard, block.end(), std::byte{0xA5});
    try {
      if (adds)
        codec.decode_reduce(exact.data(), exact.size(), block.data(), count, Op::sum, false);
      else
        codec.decode(exact.data(), exact.size(), block.data(), count);
      ++times;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::transport);
    }
    CHECK(std::all_of(block.end() - kGuard, block.end(), [](std::byte byte) { return byte == std::byte{0xA5}; }));
  }
  CHECK(times != 1);
  return times == 2;
}

std::vector<Wire> all() {
  std::vector<Wire> wires = lossy();
  for (const WireFormat& format : wire_formats())
    if (format.rounds) wires.push_back(find_wire(format.name));
  return wires;
}

// Calls run(codec, data, a message of kCount elements).
template <class Run>
void each_codec(const Run& run) {
  Random random(7);
  for (const Wire wire : all()) {
    for (const DType data : kData) {
      const auto codec = make_codec(wire, data);
      if (!codec) continue;
      const std::vector<float> values = normal(kCount, random);
      std::vector<std::byte> block(kCount * size_of(data)), message(codec->capacity(kCount));
      if (data == DType::float32)
        std::memcpy(block.data(), values.data(), block.size());
      else
        kernels::cast(data, block.data(), DType::float32, values.data(), kCount);
      message.resize(codec->encode(kKey, block.data(), kCount, message.data()));
      CHECK(taken(*codec, data, message));
      run(*codec, data, message, random);
    }
  }
}

void bytes_that_have_changed() {
  each_codec([](Codec& codec, DType data, const std::vector<std::byte>& message, Random& random) {
    for (int attempt = 0; attempt < 150; ++attempt) {
      std::vector<std::byte> bytes = message;
      for (int hit = 0; hit < 1 + attempt % 9; ++hit)
        bytes[below(random, attempt % 2 ? bytes.size() : std::min<std::size_t>(24, bytes.size()))] =
            static_cast<std::byte>(random());
      if (attempt % 3 == 0) bytes.resize(below(random, bytes.size() + 1));
      taken(codec, data, bytes);
    }
  });
}

void too_short_and_too_long() {
  each_codec([](Codec& codec, DType data, const std::vector<std::byte>& message, Random&) {
    std::vector<std::byte> bytes = message;
    bytes.push_back({});
    CHECK(!taken(codec, data, bytes));
    for (std::size_t n = 0; n < message.size(); n += n < 64 ? 1 : 37) {
      bytes.assign(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(n));
      CHECK(!taken(codec, data, bytes));
    }
  });
}

void only_noise() {
  each_codec([](Codec& codec, DType data, const std::vector<std::byte>& message, Random& random) {
    std::vector<std::byte> bytes(message.size());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    taken(codec, data, bytes);
  });
}

template <class Part>
void append(std::vector<std::byte>& bytes, const Part& part) {
  const auto* const from = reinterpret_cast<const std::byte*>(&part);
  bytes.insert(bytes.end(), from, from + sizeof part);
}

// Encodes gaps as Golomb-Rice codes, in the fewest bytes that hold them.
const unsigned low = gap_code(find_wire("topk").amount).low;

std::vector<unsigned char> coded(std::initializer_list<std::size_t> gaps) {
  std::vector<bool> bits;
  for (const std::size_t gap : gaps) {
    bits.insert(bits.end(), gap >> low, true);
    bits.push_back(false);
    for (unsigned bit = 0; bit < low; ++bit) bits.push_back((gap >> bit & 1) == 1);
  }
  std::vector<unsigned char> bytes((bits.size() + 7) / 8);
  for (std::size_t i = 0; i < bits.size(); ++i)
    bytes[i / 8] = static_cast<unsigned char>(bytes[i / 8] | (bits[i] ? 1 << i % 8 : 0));
  return bytes;
}

// Returns a message with this number of entries, of gap bytes and of values, and with these gaps.
std::vector<std::byte> sparse(std::size_t entries, std::size_t gap_bytes, std::size_t values,
                              const std::vector<unsigned char>& gaps) {
  std::vector<std::byte> bytes;
  append(bytes, static_cast<std::uint32_t>(entries));
  append(bytes, static_cast<std::uint32_t>(gap_bytes));
  append(bytes, 1.0f);
  append(bytes, std::uint16_t{1});
  append(bytes, static_cast<std::uint16_t>(low));
  for (std::size_t i = 0; i < values; ++i) append(bytes, 2.0f);
  for (const unsigned char gap : gaps) append(bytes, gap);
  return bytes;
}

std::vector<std::byte> sparse(std::size_t entries, std::initializer_list<std::size_t> gaps) {
  const auto bytes = coded(gaps);
  return sparse(entries, bytes.size(), entries, bytes);
}

void sparse_messages_that_lie() {
  const auto top = make_codec(find_wire("topk"), DType::float32);
  const auto takes = [&](const std::vector<std::byte>& message) { return taken(*top, DType::float32, message, 300); };
  CHECK(takes(sparse(2, {0, 298})) && takes(sparse(1, {299})) && takes(sparse(3, {7, 0, 290})));
  CHECK(takes(sparse(0, 0, 0, {})) && takes(sparse(0, {})));
  for (std::size_t gap = 0; gap < 5000; ++gap)
    CHECK(taken(*top, DType::float32, sparse(2, {gap, gap + 3}), 2 * gap + 5));
  CHECK(taken(*top, DType::float32, sparse(1, {4'999'999}), 5'000'000));
  CHECK(!takes(sparse(1, {300})) && !takes(sparse(2, {200, 99})));  // after the last element
  CHECK(!takes(sparse(1, {100'000})));                              // far after it
  CHECK(!takes(sparse(3, {0, 1})));                                 // fewer indices than values
  CHECK(!takes(sparse(1, {0, 77, 5})));                             // more indices than values
  CHECK(!takes(sparse(1, 2, 1, {0, 0})));                           // a superfluous byte
  CHECK(!takes(sparse(1, 3, 1, {255, 255, 255})));                  // a number without an end
  CHECK(!takes(sparse(301, 2, 2, {0, 0})));                         // more entries than elements
  CHECK(!takes(sparse(0xFFFFFFFFu, 2, 2, {0, 0})) && !takes(sparse(2, 0xFFFFFFF8u, 2, {0, 0})));
}

}  // namespace

int main() {
  bytes_that_have_changed();
  too_short_and_too_long();
  only_noise();
  sparse_messages_that_lie();
}

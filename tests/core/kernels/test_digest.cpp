// Tests digests: equal for equal bytes at any address, different after any small change, for every
// length.
#include <cstring>
#include <set>

#include "check.hpp"
#include "kernels/digest.hpp"
#include "random.hpp"

using namespace ringcomm;
using kernels::digest;

namespace {

using Bytes = std::vector<unsigned char>;

Bytes random_bytes(std::size_t count, Random& random) {
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random() >> 56);
  return bytes;
}

void alignment_does_not_matter() {
  Random random(1);
  for (std::size_t count = 0; count < 300; ++count) {
    const Bytes bytes = random_bytes(count, random);
    const std::uint64_t want = digest(bytes.data(), count);
    for (std::size_t offset = 1; offset < 17; ++offset) {
      Bytes moved(count + offset + 1, 0xff);  // bytes around the data are not read
      if (count > 0) std::memcpy(moved.data() + offset, bytes.data(), count);
      CHECK(digest(moved.data() + offset, count) == want);
    }
  }
  CHECK(digest(nullptr, 0) == digest("x", 0));
}

void every_bit_counts() {
  Random random(2);
  for (const std::size_t count : {1, 7, 8, 9, 63, 64, 65, 127, 128, 200, 1000}) {
    Bytes bytes = random_bytes(count, random);
    std::set<std::uint64_t> seen{digest(bytes.data(), count)};
    for (std::size_t bit = 0; bit < 8 * count; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
      seen.insert(digest(bytes.data(), count));
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
    }
    CHECK(seen.size() == 8 * count + 1);
  }
}

void lengths_and_places_count() {
  std::set<std::uint64_t> seen;
  const Bytes zeros(4096);
  for (std::size_t count = 0; count <= zeros.size(); ++count) seen.insert(digest(zeros.data(), count));
  CHECK(seen.size() == zeros.size() + 1);
  // These floats differ as replicas do: exchanged elements, or errors in the last place that may
  // cancel.
  std::vector<std::uint32_t> words(256, 0x3f800000);
  words[0] = 0x3f800001;
  std::set<std::uint64_t> digests;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    digests.insert(digest(words.data(), 4 * words.size()));
    std::swap(words[i], words[i + 1]);
  }
  for (std::uint32_t up = 1; up < 40; ++up) {
    for (std::uint32_t down = 1; down < 40; ++down) {
      std::vector<std::uint32_t> changed(64, 0x3f800000);
      changed[0] += up;
      changed[1] -= down;
      digests.insert(digest(changed.data(), 4 * changed.size()));
    }
  }
  CHECK(digests.size() == words.size() - 1 + 39 * 39);
}

}  // namespace

int main() {
  alignment_does_not_matter();
  every_bit_counts();
  lengths_and_places_count();
}

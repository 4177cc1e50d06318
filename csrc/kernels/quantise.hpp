// What lossy encoders do to float32 elements, a group or a stretch at a time. Every instruction set gives equal bits.
//
// What is encoded is v = block + owed, where `owed` is what this rank has held back before (error feedback: Seide et
// al. 2014, Karimireddy et al. 2019); without feedback both pointers are null. Afterwards the block holds what its
// encoding decodes to, d, and `next` what is held back now: v - d. Of a group that holds an infinity or a NaN all ranks
// get NaN, as they would have without encoding, and nothing of that is held back: `next` is `owed`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm::kernels {

inline constexpr std::size_t kLongestGroup = 2048;  // elements that share a scale: they stay in the L1 cache

enum class Quantiser : std::uint8_t { int8, int4, sign, ternary };

// Scale and codes of `count` elements, of which the encoder is told where they lie among all (`first`) for its draws.
struct QuantiseJob {
  float* block = nullptr;
  const float* residual = nullptr;
  float* next = nullptr;
  std::size_t count = 0;   // 1 to kLongestGroup
  void* wire = nullptr;    // quantised_bytes() of it
  float amount = 0;        // ternary: what is below this share of the mean magnitude becomes zero
  bool drawn = false;      // int8, int4: rounded up or down by chance (QSGD); ternary: zero by chance (TernGrad)
  bool two_means = false;  // sign: of the positive elements and of the negative ones
  bool stream = false;     // `next` past the cache; then call streamed()
  std::uint32_t seed = 0, first = 0;
};
void quantise(Quantiser how, const QuantiseJob& job);
void dequantise(Quantiser how, const void* wire, float* block, std::size_t count, bool two_means);
std::size_t quantised_bytes(Quantiser how, std::size_t count, bool two_means);

// Picks the elements whose magnitude is at least a threshold, until there is no room for more; the others become zero.
// An entry is, unless `signs` is set, a float32 or its upper half; and where it is: how many elements lie between it
// and the entry before, as a Golomb-Rice code (Golomb, IEEE Trans. Inf. Theory 12, 1966; Rice, JPL 79-22): the number
// without its `low` last bits in ones, a zero, those bits, and then the sign where that is all that is sent. Bits fill
// bytes from the lowest on.
struct SparseJob {
  float* block = nullptr;
  const float* residual = nullptr;
  float* next = nullptr;
  std::size_t count = 0;
  float threshold = 0;                     // positive
  bool signs = false;                      // what is sent of an entry is its sign, for the threshold's value
  bool halves = false;                     // bfloat16 values
  bool stream = false;                     // `next` past the cache; then call streamed()
  std::size_t most = 0;                    // entries
  unsigned low = 0;                        // at most 20
  unsigned char* gaps = nullptr;           // (count >> low) + entries * (low + 2) bits, and 8 bytes
  void* values = nullptr;                  // `most` of them; null with signs
  std::size_t entries = 0, gap_bytes = 0;  // how many there are; counted on, as what follows is, by the next job
  std::size_t run = 0;                     // elements since the last entry
  std::uint64_t bits = 0;                  // of the next bytes
  unsigned bit_count = 0;                  // below 32
  bool told = true;                        // each infinity and NaN is an entry, which a sign alone cannot be
};
void pick(SparseJob& job);

void streamed();  // what has gone past the cache is in memory before this thread says so to another

// The sum of two arrays, target = a + b; b may be null.
void add(float* target, const float* a, const float* b, std::size_t count);

}  // namespace ringcomm::kernels

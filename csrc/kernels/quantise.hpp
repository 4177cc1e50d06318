// Encodes float32 elements lossily, a group of elements at a time. The codecs build messages from
// encoded groups. Every instruction set gives equal bits.
//
// The encoded value is v = block + residual, where `residual` is what this rank left out before
// (error feedback: Seide et al. 2014, Karimireddy et al. 2019). Without feedback `residual` and
// `next` are null. Afterwards the block holds the decoded encoding, d, and `next` the new residual,
// v - d. If a group holds an infinity or a NaN, all ranks get NaN, as without encoding. The group's
// residuals do not change then: `next` is `residual`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm::kernels {

inline constexpr std::size_t kLongestGroup = 2048;  // elements with a common scale: they stay in the L1 cache

enum class Quantiser : std::uint8_t { int8, int4, sign, ternary };

// Encodes `count` elements as scale and codes. `first` is the group's index among all elements, for
// random draws.
struct QuantiseJob {
  float* block = nullptr;
  const float* residual = nullptr;
  float* next = nullptr;
  std::size_t count = 0;   // 1 to kLongestGroup
  void* wire = nullptr;    // room for quantised_bytes()
  float amount = 0;        // ternary: elements below this share of the mean magnitude become zero
  bool drawn = false;      // int8, int4: random rounding (QSGD); ternary: random zeros (TernGrad)
  bool two_means = false;  // sign: separate means of positive and negative elements
  bool stream = false;     // writes `next` with non-temporal stores; the caller calls streamed() afterwards
  std::uint32_t seed = 0, first = 0;
};
void quantise(Quantiser how, const QuantiseJob& job);
void dequantise(Quantiser how, const void* wire, float* block, std::size_t count, bool two_means);
std::size_t quantised_bytes(Quantiser how, std::size_t count, bool two_means);

// Selects the elements whose magnitude is at least the threshold, up to `most` entries; all other
// elements become zero. An entry has a value (float32, or its upper half; none with `signs`) and a
// gap: the number of elements since the entry before. A gap is encoded as gap >> low in unary
// (ones, then a zero), followed by its `low` least significant bits. With `signs`, the sign bit
// follows. Each byte is filled from its least significant bit on. Sources of this Golomb-Rice code:
// Golomb, IEEE Trans. Inf. Theory 12, 1966; Rice, JPL 79-22.
struct SparseJob {
  float* block = nullptr;
  const float* residual = nullptr;
  float* next = nullptr;
  std::size_t count = 0;
  float threshold = 0;                     // positive
  bool signs = false;                      // sends only an entry's sign; its magnitude is the threshold
  bool halves = false;                     // bfloat16 values
  bool stream = false;                     // as in QuantiseJob
  std::size_t most = 0;                    // largest number of entries
  unsigned low = 0;                        // low bits of the gaps' code, at most 20
  unsigned char* gaps = nullptr;           // (count >> low) + entries * (low + 2) bits, and 8 bytes
  void* values = nullptr;                  // room for `most` values; null with signs
  std::size_t entries = 0, gap_bytes = 0;  // written so far; the next group continues with these fields and those below
  std::size_t run = 0;                     // elements since the last entry
  std::uint64_t bits = 0;                  // bits of gaps that are not written yet
  unsigned bit_count = 0;                  // number of these bits, below 32
  bool told = true;  // false once an infinity or NaN could not be sent: no entry was left, or `signs` is set
};
void pick(SparseJob& job);

void streamed();  // orders streaming stores before this thread's later stores

// Computes target = a + b; copies a if b is null.
void add(float* target, const float* a, const float* b, std::size_t count);

}  // namespace ringcomm::kernels

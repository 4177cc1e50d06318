// Reduces one slice of an all-reduce. Every source is read once, every destination written once.
// The accumulator stays in registers and takes the sources in their order, the order of ranks.
#pragma once

#include "device/kernels/lanes.hpp"
#include "device/kernels/memory.hpp"

namespace ringcomm::gpu {

// Permitted factors. An average scales only the result, which is as fast as no scaling.
enum class Factors { none, after, both };

template <class Lane, Kind kind, Factors factors>
class Reduction {
  using Unit = typename Lane::Unit;
  using Wide = typename Lane::Wide;
  static constexpr unsigned kSize = Lane::kUnits * sizeof(Unit);  // bytes of an element
  static constexpr unsigned kPack = kPackBytes / kSize;           // elements
  static constexpr bool kSettles =
      Lane::kArithmetic && (factors == Factors::both || kind == Kind::sum || kind == Kind::product);
  // Loads several sources together only in the common case, because each number of them needs
  // separate code.
  static constexpr bool kTogether = factors == Factors::after;

 public:
  RC_DEVICE explicit Reduction(const ReduceParameters& parameters)
      : p_(parameters), pre_(parameters.pre), post_(parameters.post) {}

  RC_DEVICE void run(Place place) const {
    const Cut cut = this->cut();
    RC_LOOP for (u64 pack = place.index(); pack < cut.packs; pack += place.total())
        step<kPack, true>(cut.head + pack * kPack);
    const u64 inside = cut.packs * kPack, rest = p_.count - inside;
    RC_LOOP for (u64 at = place.index(); at < rest; at += place.total())
        step<1, false>(at < cut.head ? at : at + inside);
  }

 private:
  // Returns the packs, if all sources and destinations can be aligned at the same element.
  RC_DEVICE Cut cut() const {
    if (factors != Factors::none && !Lane::kWide) return Cut::nowhere(p_.count);
    const u64 offset = p_.first * kSize, start = address(p_.sources[0]);
    u64 differs = 0;
    RC_LOOP for (unsigned s = 1; s < p_.source_count; ++s) differs |= address(p_.sources[s]) ^ start;
    RC_LOOP for (unsigned d = 0; d < p_.destination_count; ++d) differs |= address(p_.destinations[d]) ^ start;
    return differs % kPackBytes == 0 ? Cut::at(start + offset, kSize, kPack, p_.count) : Cut::nowhere(p_.count);
  }

  // Takes sources [s, s + some). Loads them together to hide memory latency.
  template <unsigned some, unsigned elements, bool packed>
  RC_DEVICE void take(Wide* sum, unsigned s, u64 offset) const {
    constexpr unsigned kUnits = elements * Lane::kUnits;
    Unit raw[some][kUnits];
    RC_UNROLL for (unsigned k = 0; k < some; ++k) load<packed, kUnits>(raw[k], address(p_.sources[s + k]) + offset);
    RC_UNROLL for (unsigned k = 0; k < some; ++k) {
      const bool first = k == 0 && s == 0;
      RC_UNROLL for (unsigned e = 0; e < elements; ++e) {
        const Wide value = pre(Lane::widen(raw[k] + e * Lane::kUnits));
        sum[e] = first ? value : combine<Lane, kind>(sum[e], value);
      }
    }
  }

  template <unsigned elements, bool packed>
  RC_DEVICE void step(u64 element) const {
    constexpr unsigned kUnits = elements * Lane::kUnits;
    const u64 offset = (p_.first + element) * kSize;
    const unsigned sources = p_.source_count;
    Wide sum[elements] = {};
    unsigned s = 0;
    if constexpr (kTogether && packed) {
      if (sources % 2 != 0) take<1, elements, packed>(sum, 0, offset), s = 1;
      if (sources / 2 % 2 != 0) take<2, elements, packed>(sum, s, offset), s += 2;
      RC_LOOP for (; s < sources; s += 4) take<4, elements, packed>(sum, s, offset);
    } else {
      RC_LOOP for (; s < sources; ++s) take<1, elements, packed>(sum, s, offset);
    }
    Unit raw[kUnits];
    RC_UNROLL for (unsigned e = 0; e < elements; ++e) Lane::narrow(raw + e * Lane::kUnits, finish(sum[e]));
    RC_LOOP for (unsigned d = 0; d < p_.destination_count; ++d)
        store<packed, kUnits>(address(p_.destinations[d]) + offset, raw);
  }

  RC_DEVICE Wide pre(Wide value) const {
    if constexpr (factors == Factors::both) return pre_(value);
    return value;
  }
  RC_DEVICE Wide finish(Wide sum) const {
    if constexpr (factors != Factors::none) sum = post_(sum);
    if constexpr (kSettles) sum = Lane::settle(sum);
    return sum;
  }

  const ReduceParameters& p_;
  typename Lane::Scaler pre_, post_;
};

// `Plain`: the lane without scaling. A single unscaled source keeps its bits.
template <class Plain, class Scaled, Kind kind>
RC_DEVICE void reduce(const ReduceParameters& parameters, Place place) {
  const bool before = parameters.pre.mode != kUnscaled, after = parameters.post.mode != kUnscaled;
  if (Plain::kKeepsOne && !before && !after && parameters.source_count == 1)
    return Reduction<BytesLane<Plain>, Kind::first, Factors::none>(parameters).run(place);
  constexpr bool kSums = Plain::kArithmetic && (kind == Kind::sum || kind == Kind::product);
  if constexpr (Scaled::kScales)
    if (before || (after && !kSums)) return Reduction<Scaled, kind, Factors::both>(parameters).run(place);
  Reduction<Plain, kind, kSums ? Factors::after : Factors::none>(parameters).run(place);
}

}  // namespace ringcomm::gpu

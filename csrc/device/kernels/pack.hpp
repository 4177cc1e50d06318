// Copies many tensors in one launch, each with a cast and a scale: gradients into a bucket and, in
// the reverse direction, back. Scaling uses the wider of the two formats, float32 at least. Results
// have the same bits as a cast to that format, a scale in it, and a cast to the destination's
// format. A tensor that is its own destination is scaled in place.
#pragma once

#include "device/kernels/formats.hpp"
#include "device/kernels/memory.hpp"

namespace ringcomm::gpu {

// A chunk of a tensor. A block processes one chunk after another.
struct Chunk {
  u64 source, destination, count;

  static RC_DEVICE Chunk of(const PackParameters& p, u32 chunk, u32 from_size, u32 to_size) {
    u32 tensor = 0;  // last tensor that begins at or before the chunk; empty ones begin with the next
    RC_LOOP for (u32 end = p.tensor_count; tensor + 1 < end;) {
      const u32 middle = (tensor + end) / 2;
      (p.first_chunk[middle] <= chunk ? tensor : end) = middle;
    }
    const u64 begin = (chunk - p.first_chunk[tensor]) * p.chunk, rest = p.counts[tensor] - begin;
    return {address(p.sources[tensor]) + begin * from_size, address(p.destinations[tensor]) + begin * to_size,
            rest < p.chunk ? rest : p.chunk};
  }
};

template <class From, class To, bool scaled>
class Packing {
  using Source = typename From::Unit;
  using Target = typename To::Unit;
  static constexpr u32 kFrom = sizeof(Source), kTo = sizeof(Target), kNarrow = kFrom < kTo ? kFrom : kTo;
  static constexpr u32 kPack = kPackBytes / kNarrow;                             // elements
  static constexpr u32 kAtOnce = kPack * kFrom < 32 ? 32 / (kPack * kFrom) : 1;  // packs loaded together

 public:
  RC_DEVICE explicit Packing(const PackParameters& parameters) : p_(parameters), convert_(parameters.scaling) {}

  RC_DEVICE void run(Place place) const {
    const u32 chunks = p_.first_chunk[p_.tensor_count];
    RC_LOOP for (u32 c = place.block; c < chunks; c += place.blocks) run(Chunk::of(p_, c, kFrom, kTo), place);
  }

 private:
  static RC_DEVICE Cut cut(const Chunk& chunk) {
    if (scaled && !From::kWide) return Cut::nowhere(chunk.count);
    const bool by_source = kFrom == kNarrow;
    const Cut cut = Cut::at(by_source ? chunk.source : chunk.destination, kNarrow, kPack, chunk.count);
    const u64 other = by_source ? chunk.destination + cut.head * kTo : chunk.source + cut.head * kFrom;
    return other % kPackBytes == 0 ? cut : Cut::nowhere(chunk.count);
  }

  RC_DEVICE void run(const Chunk& chunk, Place place) const {
    const Cut cut = this->cut(chunk);
    u64 pack = place.thread;
    RC_LOOP for (; pack + (kAtOnce - 1) * place.threads < cut.packs; pack += kAtOnce * place.threads)
        step<kAtOnce, kPack, true>(chunk, cut.head + pack * kPack, place.threads * kPack);
    RC_LOOP for (; pack < cut.packs; pack += place.threads) step<1, kPack, true>(chunk, cut.head + pack * kPack, 0);
    const u64 inside = cut.packs * kPack, rest = chunk.count - inside;
    RC_LOOP for (u64 at = place.thread; at < rest; at += place.threads)
        step<1, 1, false>(chunk, at < cut.head ? at : at + inside, 0);
  }

  // Copies `some` groups of `elements` elements at intervals of `stride`.
  template <u32 some, u32 elements, bool packed>
  RC_DEVICE void step(const Chunk& chunk, u64 element, u64 stride) const {
    Source from[some][elements];
    RC_UNROLL for (u32 k = 0; k < some; ++k)
        load<packed, elements>(from[k], chunk.source + (element + k * stride) * kFrom);
    RC_UNROLL for (u32 k = 0; k < some; ++k) {
      Target to[elements];
      RC_UNROLL for (u32 e = 0; e < elements; ++e) to[e] = convert_(from[k][e]);
      store<packed, elements>(chunk.destination + (element + k * stride) * kTo, to);
    }
  }

  const PackParameters& p_;
  Conversion<From, To, scaled> convert_;
};

template <class From, class To>
RC_DEVICE void pack(const PackParameters& parameters, Place place) {
  if constexpr (From::kKeepsBits)
    if (parameters.scaling.mode == kUnscaled) return Packing<From, To, false>(parameters).run(place);
  Packing<From, To, true>(parameters).run(place);
}

}  // namespace ringcomm::gpu

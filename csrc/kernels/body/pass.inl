// Runs one pass: for each index, reads the sources, combines them in registers, and writes the
// targets. Every load of an index precedes its first store, so targets may be sources.

enum class Kind { sum, min, max, product, both, either, one };

template <class Lane, Kind kind>
INLINE typename Lane::Wide combine(typename Lane::Wide a, typename Lane::Wide b) {
  if constexpr (kind == Kind::sum) return Lane::add(a, b);
  if constexpr (kind == Kind::min) return Lane::lower(a, b);
  if constexpr (kind == Kind::max) return Lane::upper(a, b);
  if constexpr (kind == Kind::product) return Lane::multiply(a, b);
  if constexpr (kind == Kind::both) return a & b;
  if constexpr (kind == Kind::either) return a | b;
  if constexpr (kind == Kind::one) return a ^ b;
}

template <bool scaled, class Scaler>
struct MaybeScaler : Scaler {
  using Scaler::Scaler;
};
template <class Scaler>
struct MaybeScaler<false, Scaler> : NoScaler {
  using NoScaler::NoScaler;
};

// Calls `act` with first, first + 1, ... below the count. The count is `Known`, or `count` if Known
// is 0. A known count is unrolled here and not by the compiler: under NO_UNROLL clang keeps the
// loop, and then loads each pointer from the stack.
template <std::size_t Known, class Act>
INLINE void each(std::size_t count, const Act& act, std::size_t first = 0) {
  if constexpr (Known > 0) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((I >= first ? act(I) : void()), ...);
    }(std::make_index_sequence<Known>());
  } else {
    NO_UNROLL for (std::size_t i = first; i < count; ++i) act(i);
  }
}

// Sources and Targets: numbers of arrays if known at compile time; else 0.
template <class Lane, Kind kind, bool scaled, std::size_t Sources, std::size_t Targets>
class Runner {
  using Wide = typename Lane::Wide;
  using Raw = typename Lane::Raw;
  static constexpr bool kFixed = Sources > 0;
  static constexpr bool kArithmetic = scaled || kind == Kind::sum || kind == Kind::product;
  static constexpr std::size_t kUnroll = sizeof(Raw) >= 64 ? 1 : 2;

 public:
  explicit Runner(const Pass& pass)
      : source_count_(kFixed ? Sources : pass.source_count), target_count_(kFixed ? Targets : pass.target_count),
        pre_(pass.pre), post_(pass.post), stream_(pass.stream), in_place_(true),
        carry_in_(static_cast<const std::byte*>(pass.carry_in)), carry_out_(static_cast<std::byte*>(pass.carry_out)) {
    each_source([&](std::size_t s) {
      sources_[s] = static_cast<const std::byte*>(pass.sources[s]) + pass.first * Lane::kSize;
    });
    each_target(
        [&](std::size_t t) { targets_[t] = static_cast<std::byte*>(pass.targets[t]) + pass.first * Lane::kSize; });
    if (source_count_ != target_count_) in_place_ = false;
    for (std::size_t s = 0; in_place_ && s < source_count_; ++s) in_place_ = sources_[s] == targets_[s];
  }

  void run(std::size_t count) const {
    const std::size_t packs = count / Lane::kWidth, rest = count % Lane::kWidth;
    std::size_t pack = 0;
    const Runner hot = *this;  // its address is not taken, so the compiler knows that no store changes it
    for (; pack + kUnroll <= packs; pack += kUnroll) hot.template step<kUnroll>(pack, stream_);
    for (; pack < packs; ++pack) single(pack);
    if (rest > 0) last(pack, rest * Lane::kSize);
  }

 private:
  template <class Act>
  INLINE void each_source(const Act& act, std::size_t first = 0) const {
    each<Sources>(source_count_, act, first);
  }
  template <class Act>
  INLINE void each_target(const Act& act) const {
    each<Targets>(target_count_, act);
  }

  template <std::size_t N>
  INLINE void step(std::size_t pack, bool streaming) const {
    const std::size_t at = pack * sizeof(Raw);
    Wide sum[N];
    const bool carried = !kFixed && carry_in_ != nullptr;
    for (std::size_t n = 0; n < N; ++n)
      sum[n] = carried ? Memory<Wide>::read(carry_in_ + (pack + n) * sizeof(Wide)) : read(0, at + n * sizeof(Raw));
    const auto add = [&](std::size_t s) {
      for (std::size_t n = 0; n < N; ++n) sum[n] = combine<Lane, kind>(sum[n], read(s, at + n * sizeof(Raw)));
    };
    each_source(add, carried ? 0 : 1);
    if (!kFixed && carry_out_ != nullptr) {
      for (std::size_t n = 0; n < N; ++n) Memory<Wide>::write(carry_out_ + (pack + n) * sizeof(Wide), sum[n]);
      return;
    }
    Raw raw[N];
    for (std::size_t n = 0; n < N; ++n) raw[n] = finish(sum[n]);
    if constexpr (N == kUnroll) {
      each_target([&](std::size_t t) { __builtin_prefetch(targets_[t] + at + kAheadBytes, 1); });
      if (!in_place_) each_source([&](std::size_t s) { __builtin_prefetch(sources_[s] + at + kAheadBytes, 0); });
    }
    each_target([&](std::size_t t) {
      for (std::size_t n = 0; n < N; ++n) write(targets_[t] + at + n * sizeof(Raw), raw[n], streaming);
    });
  }

  NOINLINE void single(std::size_t pack) const { step<1>(pack, false); }

  // Processes the last elements, fewer than a vector holds, through padded copies and the same
  // operations.
  void last(std::size_t pack, std::size_t nbytes) const {
    constexpr std::size_t kCopies = kFixed ? Sources : kStreams;
    alignas(64) std::byte copies[kCopies][sizeof(Raw)] = {}, result[sizeof(Raw)];
    const std::size_t at = pack * sizeof(Raw);
    Runner padded = *this;
    each_source([&](std::size_t s) {
      __builtin_memcpy(copies[s], sources_[s] + at, nbytes);
      padded.sources_[s] = copies[s];
    });
    each_target([&](std::size_t t) { padded.targets_[t] = result; });
    if (!kFixed && carry_in_ != nullptr) padded.carry_in_ += pack * sizeof(Wide);
    if (!kFixed && carry_out_ != nullptr) padded.carry_out_ += pack * sizeof(Wide);
    padded.single(0);
    each_target([&](std::size_t t) { __builtin_memcpy(targets_[t] + at, result, nbytes); });
  }

  static INLINE void write(std::byte* to, const Raw& raw, bool streaming) {
    if (!kFixed && streaming)
      Memory<Raw>::write_streaming(to, raw);
    else
      Memory<Raw>::write(to, raw);
  }
  INLINE Wide read(std::size_t s, std::size_t at) const {
    return pre_(Lane::widen(Memory<Raw>::read(sources_[s] + at)));
  }
  INLINE Raw finish(Wide sum) const {
    const Wide scaled_sum = post_(sum);
    if constexpr (kArithmetic) return Lane::narrow(Lane::canonical(scaled_sum));
    return Lane::narrow(scaled_sum);
  }

  const std::byte* sources_[kFixed ? Sources : kStreams];
  std::byte* targets_[kFixed ? Targets : kStreams];
  std::size_t source_count_, target_count_;
  MaybeScaler<scaled, typename Lane::Scaler> pre_, post_;
  bool stream_, in_place_;
  const std::byte* carry_in_;
  std::byte* carry_out_;
};

template <class Lane, Kind kind, bool scaled>
void run_pass(const Pass& pass) {
  if constexpr (Lane::kHot && kind == Kind::sum) {
    const bool whole = pass.carry_in == nullptr && pass.carry_out == nullptr && !pass.stream && pass.source_count == 2;
    if (whole && pass.target_count == 2) return Runner<Lane, kind, scaled, 2, 2>(pass).run(pass.count);
    if constexpr (!scaled)
      if (whole && pass.target_count == 1) return Runner<Lane, kind, scaled, 2, 1>(pass).run(pass.count);
  }
  Runner<Lane, kind, scaled, 0, 0>(pass).run(pass.count);
}

// Runs a pass over elements of `size` bytes as bytes.
template <std::size_t size, Kind kind>
void run_bits(const Pass& pass) {
  Pass bytes = pass;
  bytes.first *= size;
  bytes.count *= size;
  run_pass<BitsLane, kind, false>(bytes);
}

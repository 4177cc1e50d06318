// What a rank has in an operation of a quorum (engine/quorum.hpp), whether it comes to a round of it or not.
//
// A round is a reduction in place of an array of its own. What its rank has given by the time it begins goes into it,
// and what comes of it is kept until the rank takes it: so rounds go on without a rank that computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/types.hpp"

namespace ringcomm {

class Standing {
 public:
  // add: what is given is added up, and a round uses it up; results are added up too, so that nothing is lost of
  // gradients. put: the last given counts, and remains; so does the last result: weights.
  enum class Rule : std::uint8_t { add, put };

  // `array`: `count` elements (float32 or float64) that rounds are of.
  Standing(DType dtype, std::size_t count, void* array, Rule rule);

  // ---- the rank's thread
  void offer(const void* data);  // for whatever round comes next
  // Offers `data` (null: nothing), and calls `come` unless it is late: unless rounds have been agreed on without it
  // since it took results last, which are results enough.
  void give(const void* data, const std::function<void()>& come);
  bool has_results() const;
  // The results, into `out`, which stays as it is if there are none.
  struct Taken {
    std::uint64_t rounds = 0;
    bool included = true;  // the last of them had what was offered last
  };
  Taken take(void* out);
  // What was offered and no round has had (of `add`), and what came and was not taken.
  void save(void* given, void* kept) const;
  void restore(const void* given, const void* kept);

  // ---- the worker
  void agree();  // on a round: who gives from now on is late
  void begin();
  void end();

 private:
  struct Sum {  // or the last, as the rule says
    std::shared_ptr<std::byte[]> data;
    bool any = false;
  };
  void put_in(const void* data);
  void add(Sum& sum, const void* data) const;
  void copy_out(const Sum& sum, void* out) const;

  const DType dtype_;
  const std::size_t count_, nbytes_;
  void* const array_;
  const Rule rule_;
  mutable std::mutex mutex_;
  Sum given_, kept_;
  std::uint64_t gifts_ = 0, gifts_in_round_ = 0, gifts_in_kept_ = 0;
  std::uint64_t agreed_ = 0, ended_ = 0, taken_ = 0;  // rounds
};

}  // namespace ringcomm

// Stores the residuals of error feedback. A residual is the part of an element that an encoder left
// out; the encoder adds it when it next encodes the element. Source: Seide et al., "1-bit
// stochastic gradient descent", Interspeech 2014; Karimireddy et al., arXiv:1901.09847.
//
// A residual is in units of the sum that its element contributes to. In one call a rank encodes
// each element once, as a contributor or as the sum's owner. So residuals stay valid when the
// number of ranks, the schedule, or the cut changes.
//
// A call reads the current residuals and writes the next ones to a second buffer. So a call whose
// result is dropped can be undone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/cuts.hpp"

namespace ringcomm {

class Feedback {
 public:
  // Creates zero residuals for tensors of these element counts. The system allocates a page only
  // when it is written. So a rank that encodes only a part of the array, because other ranks of its
  // host encode the rest, uses memory for that part only.
  explicit Feedback(std::span<const std::size_t> counts);

  // Begins a call. The residuals that the last call wrote become current, unless it was undone.
  // `way` identifies the route and the algorithm: a call with another `way` may skip elements that
  // the last call encoded.
  void begin(std::uint64_t tensor, std::uint64_t way);
  void undo(std::uint64_t tensor);                                        // undoes the last call
  void undo(std::uint64_t tensor, std::size_t first, std::size_t count);  // undoes the last call for these elements
  void undo_all();
  void scale(double by);  // multiplies all residuals; for a change of units
  // Returns the residuals after the last call, for callers that save or restore them.
  std::span<float> residual(std::uint64_t tensor);

  // before() and after() are for encoders, between begin() and the call's end.
  const float* before(std::uint64_t tensor) const { return tensors_.at(tensor).now.get(); }
  float* after(std::uint64_t tensor) { return tensors_.at(tensor).next.get(); }
  // Returns true if the residuals do not stay in cache until the next call.
  bool large(std::uint64_t tensor) const { return count(tensor) >= kLarge; }
  std::size_t count(std::uint64_t tensor) const { return tensors_.at(tensor).count; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Floats {  // aligned to a cache line
    std::unique_ptr<std::byte[], Free> memory;
    float* get() const {
      return reinterpret_cast<float*>(round_up(reinterpret_cast<std::uintptr_t>(memory.get()), kLine));
    }
  };
  struct Tensor {
    std::size_t count;
    Floats now, next;
    std::uint64_t way = 0;
    bool begun = false;    // a call has begun, or residual() was called
    bool pending = false;  // `next` holds the residuals after the last call
  };
  static constexpr std::size_t kLarge = std::size_t{1} << 20;
  static Floats zeros(std::size_t count);
  static void adopt(Tensor& tensor);

  std::vector<Tensor> tensors_;
};

}  // namespace ringcomm

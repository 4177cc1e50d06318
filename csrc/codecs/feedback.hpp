// Error feedback: what an encoder has held back of each element, which it adds when it encodes the element next
// (Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Karimireddy et al., arXiv:1901.09847).
//
// What this rank owes of an element is in units of the sum that it goes into, whatever part the rank has in making that
// sum: in one call it encodes the element once, as a contributor or as the sum's owner. So what is owed stays right
// when the number of ranks, the schedule, or the cut change; and adding it to the array, in place of it, hands it over.
//
// A call reads what is owed and writes beside it what will be owed. So a call whose result is dropped can be undone.
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
  // Of tensors with so many elements. Memory is only taken where it is written: a rank that encodes a part of an array,
  // as ranks that share a host do, has no more than that.
  explicit Feedback(std::span<const std::size_t> counts);

  // A call begins. What the last one has left is owed from now on, unless it was undone. `way` names how the call runs:
  // another way may leave out elements that the last one encoded.
  void begin(std::uint64_t tensor, std::uint64_t way);
  void undo(std::uint64_t tensor);                                        // of the last call: as if it had not been
  void undo(std::uint64_t tensor, std::size_t first, std::size_t count);  // of these elements
  void undo_all();
  void scale(double by);  // the units of what is encoded have changed by so much
  // What is owed after the last call, for whoever saves it; written: for whoever restores it.
  std::span<float> residual(std::uint64_t tensor);

  // For encoders, between begin() and the call's end.
  const float* before(std::uint64_t tensor) const { return tensors_.at(tensor).now.get(); }
  float* after(std::uint64_t tensor) { return tensors_.at(tensor).next.get(); }
  // Whether no cache will hold what is owed until the next call.
  bool large(std::uint64_t tensor) const { return count(tensor) >= kLarge; }
  std::size_t count(std::uint64_t tensor) const { return tensors_.at(tensor).count; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Floats {  // from the begin of a cache line on
    std::unique_ptr<std::byte[], Free> memory;
    float* get() const {
      return reinterpret_cast<float*>(round_up(reinterpret_cast<std::uintptr_t>(memory.get()), kLine));
    }
  };
  struct Tensor {
    std::size_t count;
    Floats now, next;
    std::uint64_t way = 0;
    bool begun = false;    // a call has been, or what is owed has been looked at
    bool pending = false;  // `next` is what is owed after the last call
  };
  static constexpr std::size_t kLarge = std::size_t{1} << 20;
  static Floats zeros(std::size_t count);
  static void adopt(Tensor& tensor);

  std::vector<Tensor> tensors_;
};

}  // namespace ringcomm

// Reduces a bucket's matrices M as two thin factors. P = M Q is summed over the ranks and
// orthogonalised, then Q = M' P is summed. Every rank uses P Q' as the sum (' transposes). Each
// rank adds the part of its matrix that P leaves out to its next one (error feedback). The result
// is bitwise equal on all ranks. PlanRun uses it.
//
// Source: Vogels, Karimireddy and Jaggi, "PowerSGD", arXiv:1905.13727.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/channel.hpp"
#include "engine/request.hpp"

namespace ringcomm {

class LowRankFactors {
 public:
  // `seed`: equal on all ranks.
  LowRankFactors(LowRank shape, std::uint64_t seed);

  // Starts a sum or an average that has been agreed. `call` has the feedback, which may be null.
  std::unique_ptr<Task> start(Channel& channel, Call&& call);

  std::size_t rank_of(std::size_t matrix) const;
  std::size_t left_elements() const { return left_; }  // elements of P of all matrices
  std::size_t right_elements() const { return right_.size(); }
  const LowRank& shape() const { return shape_; }
  const float* right(std::size_t offset) const { return right_.data() + offset; }
  // Stores a column of Q, from which the next step computes P, unless the column is zero.
  void adopt(std::size_t offset, const float* factor, std::size_t count);

 private:
  void draw();

  const LowRank shape_;
  std::uint64_t seed_;
  std::size_t left_ = 0;
  std::vector<float> right_;  // Q of all matrices; each column is contiguous
};

}  // namespace ringcomm

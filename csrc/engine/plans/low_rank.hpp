// A bucket's matrices M reduced as two thin factors: P = M Q is summed over the ranks and orthogonalised, Q = M' P is
// summed, and P Q' is what every rank has of the sum (' transposes). What P leaves out of its matrix a rank adds to the
// next one (error feedback). All ranks have the same bits.
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
  // `seed`: the same on all ranks.
  LowRankFactors(LowRank shape, std::uint64_t seed);

  // A sum or an average, agreed. `call` has the feedback, which may be null.
  std::unique_ptr<Task> start(Channel& channel, Call&& call);

  std::size_t rank_of(std::size_t matrix) const;
  std::size_t left_elements() const { return left_; }  // of P of all matrices
  std::size_t right_elements() const { return right_.size(); }
  const LowRank& shape() const { return shape_; }
  const float* right(std::size_t offset) const { return right_.data() + offset; }
  // Of a factor that has come: what the next step's P is made with, unless it is zero.
  void adopt(std::size_t offset, const float* factor, std::size_t count);

 private:
  void draw();

  const LowRank shape_;
  std::uint64_t seed_;
  std::size_t left_ = 0;
  std::vector<float> right_;  // Q of all matrices: each column in one piece
};

}  // namespace ringcomm

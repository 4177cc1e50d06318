// The residuals of a graph operation's tensors, for its next run. The owner serialises access.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "codecs/feedback.hpp"

namespace ringcomm {

class Residuals {
 public:
  // Begins a run of tensors with these numbers of elements. If they differ from the last run's, all
  // residuals are zero.
  void begin(std::vector<std::size_t> counts) {
    if (feedback_ && counts == counts_) return;
    feedback_ = std::make_unique<Feedback>(counts);
    for (std::size_t i = 0; i < std::min(waiting_.size(), counts.size()); ++i)
      if (waiting_[i].size() == counts[i]) std::ranges::copy(waiting_[i], feedback_->residual(i).begin());
    waiting_.clear();
    counts_ = std::move(counts);
  }
  Feedback* feedback() { return feedback_.get(); }  // null before the first run

  // Returns the residual, in units of the sum; empty if there is none yet.
  std::vector<float> residual(std::size_t tensor) {
    if (!feedback_) return tensor < waiting_.size() ? waiting_[tensor] : std::vector<float>();
    const auto all = feedback_->residual(tensor);
    return {all.begin(), all.end()};
  }
  // Replaces the residual. Before the first run the values are stored until that run; values of
  // another length than the tensor are ignored.
  void set_residual(std::size_t tensor, std::vector<float> values) {
    if (!feedback_) {
      waiting_.resize(std::max(waiting_.size(), tensor + 1));
      waiting_[tensor] = std::move(values);
    } else if (values.size() == counts_.at(tensor)) {
      std::ranges::copy(values, feedback_->residual(tensor).begin());
    }
  }

 private:
  std::unique_ptr<Feedback> feedback_;
  std::vector<std::size_t> counts_;
  std::vector<std::vector<float>> waiting_;
};

}  // namespace ringcomm

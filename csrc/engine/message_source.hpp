// Messages in the background: the worker moves what callers have begun.
#pragma once

#include <memory>
#include <utility>

#include "engine/worker.hpp"
#include "p2p/point_to_point.hpp"

namespace ringcomm {

class MessageSource final : public Source {
 public:
  MessageSource(std::shared_ptr<Worker> worker, std::shared_ptr<PointToPoint> ranks)
      : worker_(std::move(worker)), ranks_(std::move(ranks)) {}
  PointToPoint& ranks() { return *ranks_; }

  // Any thread. For what is short the worker is not woken at once: somebody may wait for it in a moment.
  void start(const std::shared_ptr<Request>& request) {
    constexpr std::uint64_t kShort = 64 << 10;
    ranks_->start(request);
    if (!request->done()) worker_->wake(request->nbytes <= kShort ? Worker::When::soon : Worker::When::now);
  }
  Progress turn() override {
    const bool moved = ranks_->progress();
    if (!ranks_->pending()) return Progress::done;
    return moved ? Progress::moved : Progress::blocked;
  }
  bool moving_data() override { return ranks_->moving(); }
  bool far() override { return ranks_->far(); }

 private:
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<PointToPoint> ranks_;
};

}  // namespace ringcomm

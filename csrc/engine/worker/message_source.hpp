// Lets the worker move point-to-point messages in the background. A thread that waits for one
// message moves all messages meanwhile, and the worker pauses. On a core that both share, the
// worker's polling and a wake-up per message took longer than copying a megabyte.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/worker/worker.hpp"
#include "p2p/point_to_point.hpp"

namespace ringcomm {

class MessageSource final : public Source {
 public:
  // `own_core`: the worker's thread shares no core with callers.
  MessageSource(std::shared_ptr<Worker> worker, std::shared_ptr<PointToPoint> ranks, bool own_core)
      : worker_(std::move(worker)), ranks_(std::move(ranks)), own_core_(own_core) {}
  PointToPoint& ranks() { return *ranks_; }

  // Starts a request, from any thread. Does not wake the worker immediately for short messages, nor
  // if it would take the caller's core: the caller may wait for the message soon. Messages to other
  // hosts need little CPU time, but take long.
  void start(const std::shared_ptr<Request>& request) {
    constexpr std::uint64_t kShort = 64 << 10;
    ranks_->start(request);
    if (!request->done())
      worker_->wake((own_core_ || far()) && request->nbytes > kShort ? Worker::When::now : Worker::When::soon);
  }
  bool wait(const Request& request, std::int64_t deadline_ns, bool (*interrupted)()) {
    if (request.done()) return true;
    const Waiter here(*this);
    return ranks_->wait(request, deadline_ns, interrupted);
  }
  Progress turn() override {
    if (waiters_.load() > 0) return Progress::done;
    const bool moved = ranks_->progress();
    if (!ranks_->pending()) return Progress::done;
    return moved ? Progress::moved : Progress::blocked;
  }
  bool moving_data() override { return ranks_->moving(); }
  bool far() override { return ranks_->far(); }

 private:
  class Waiter {
   public:
    explicit Waiter(MessageSource& source) : source_(source) { source_.waiters_.fetch_add(1); }
    Waiter(const Waiter&) = delete;
    ~Waiter() {  // the worker takes over the remaining messages
      if (source_.waiters_.fetch_sub(1) == 1 && source_.ranks_->pending()) source_.worker_->wake(Worker::When::soon);
    }

   private:
    MessageSource& source_;
  };

  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<PointToPoint> ranks_;
  const bool own_core_;
  std::atomic<int> waiters_{0};
};

}  // namespace ringcomm

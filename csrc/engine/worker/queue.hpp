// The non-blocking calls of one channel, which the worker runs in the order submitted. The binding
// layer submits to it.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>

#include "collectives/channel.hpp"
#include "engine/operation.hpp"
#include "engine/worker/worker.hpp"

namespace ringcomm {

class CallQueue : public Source, public std::enable_shared_from_this<CallQueue> {
 public:
  // Makes a queue and adds it to the worker. close() it before the channel's transport is
  // destroyed.
  static std::shared_ptr<CallQueue> make(std::shared_ptr<Worker> worker, std::shared_ptr<Channel> channel);

  // Any thread may submit. The operation receives the result of an all-gather without counts (see
  // Call::received). Throws Error(shut_down) after close().
  std::shared_ptr<Operation> submit(Call call);
  // Removes the queue from the worker; must not be called within a turn. Unfinished calls fail with
  // Error(shut_down).
  void close();

  Progress turn() override;
  bool moving_data() override { return task_ != nullptr; }
  bool far() override { return !channel_->on_one_host(); }

 private:
  CallQueue(std::shared_ptr<Worker> worker, std::shared_ptr<Channel> channel);
  struct Entry {
    Call call;
    std::shared_ptr<Operation> operation;
    std::int64_t submitted_ns = 0;
  };
  bool start_next();  // false: nothing to start
  void end_current(std::exception_ptr error);
  void fail_all(std::exception_ptr error);
  void fail(const Entry& unstarted, const std::exception_ptr& error) const;
  void record_queue(const Entry& entry) const;
  void record_failure(const Operation& operation) const;

  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Channel> channel_;
  std::mutex mutex_;  // guards waiting_, failed_, closed_
  std::deque<Entry> waiting_;
  std::exception_ptr failed_;  // fatal: the error of every later call
  bool closed_ = false;
  // Used by the worker.
  std::unique_ptr<Task> task_;
  Entry current_;
  StallReport stall_;
};

}  // namespace ringcomm

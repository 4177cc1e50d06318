// Implements CallQueue: submits calls, runs them in order, and handles their errors.
#include "engine/worker/queue.hpp"

#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/trace.hpp"

namespace ringcomm {

CallQueue::CallQueue(std::shared_ptr<Worker> worker, std::shared_ptr<Channel> channel)
    : worker_(std::move(worker)), channel_(std::move(channel)),
      stall_(channel_->rank(), channel_->context().config.stall_warn_seconds) {}

std::shared_ptr<CallQueue> CallQueue::make(std::shared_ptr<Worker> worker, std::shared_ptr<Channel> channel) {
  std::shared_ptr<CallQueue> queue(new CallQueue(worker, std::move(channel)));
  worker->add(queue);
  return queue;
}

std::shared_ptr<Operation> CallQueue::submit(Call call) {
  auto operation = std::make_shared<Operation>(call.name);
  if (call.collective == Collective::allgather && call.counts.empty()) call.received = operation.get();
  // A thread that submits a small call soon waits for it, and then works in place of the worker's
  // thread, so that thread need not be woken.
  constexpr std::size_t kSmall = 64 << 10;
  const bool small = call.count * size_of(call.dtype) <= kSmall;
  {
    const std::lock_guard lock(mutex_);
    if (closed_)
      throw Error(ErrorKind::shut_down, "'" + call.name + "' was submitted after the communicator was closed");
    if (failed_) {
      fail({{}, operation, now_ns()}, failed_);
      return operation;
    }
    waiting_.push_back({std::move(call), operation, now_ns()});
  }
  worker_->wake(small ? Worker::When::soon : Worker::When::now);
  return operation;
}

void CallQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  worker_->remove(shared_from_this());  // from here on no other thread uses task_
  if (task_) channel_->leave(true);
  fail_all(std::make_exception_ptr(
      Error(ErrorKind::shut_down, "the communicator was closed before this call had finished")));
}

Progress CallQueue::turn() {
  bool moved = false;
  for (;;) {
    try {
      // starts the next call in the same turn, so that the worker needs no further wake-up
      if (!task_ && !start_next()) return Progress::done;
      const Progress progress = task_->advance();
      if (progress == Progress::blocked)
        stall_.blocked(now_ns(), [this] {
          return channel_->context().stalled_in(current_.operation->name, "the non-blocking call");
        });
      else
        stall_.moved();
      if (progress != Progress::done) return moved || progress == Progress::moved ? Progress::moved : Progress::blocked;
      moved = true;
      end_current(nullptr);
    } catch (const Error& error) {
      moved = true;
      if (error.fatal() || channel_->broken()) {
        fail_all(std::current_exception());
      } else {
        end_current(std::current_exception());  // every rank met it before data moved: the next call can run
      }
    } catch (...) {
      moved = true;
      // Out of memory: the peers have started the call.
      channel_->end_after(Error(ErrorKind::transport, "an earlier call failed on this rank only"));
      fail_all(std::current_exception());
    }
  }
}

bool CallQueue::start_next() {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty() || closed_) return false;
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
  }
  record_queue(current_);
  task_ = channel_->start(std::move(current_.call));
  return true;
}

void CallQueue::end_current(std::exception_ptr error) {
  if (task_ && error) task_->abandon();
  task_.reset();
  const Entry ended = std::exchange(current_, {});
  const auto& operation = ended.operation;
  if (!operation) return;
  if (error) record_failure(*operation);
  if (!error && (operation->entry = channel_->timed_entry())) operation->entry->add_time(now_ns() - ended.submitted_ns);
  operation->finish(std::move(error));
}

void CallQueue::fail_all(std::exception_ptr error) {
  std::deque<Entry> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = error;
    waiting.swap(waiting_);
  }
  end_current(error);
  for (const Entry& entry : waiting) fail(entry, error);
}

void CallQueue::fail(const Entry& unstarted, const std::exception_ptr& error) const {
  record_queue(unstarted);
  record_failure(*unstarted.operation);
  unstarted.operation->finish(error);
}

void CallQueue::record_queue(const Entry& entry) const {
  if (!trace().enabled()) return;
  trace().record("queue", entry.operation->name, "", entry.submitted_ns, now_ns(), 0, channel_->rank(), 1);
}

void CallQueue::record_failure(const Operation& operation) const {
  if (!trace().enabled()) return;
  const std::int64_t now = now_ns();
  trace().record("done", operation.name, "failed", now, now, 0, channel_->rank(), 1);
}

}  // namespace ringcomm

// Implements Services: starts added services, runs their turns, and ends them.
#include "engine/worker/services.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.hpp"
#include "engine/tags.hpp"

namespace ringcomm {
namespace {
constexpr std::int64_t kHot = 50'000'000;  // ns of frequent polling after activity
}

void Services::add(std::shared_ptr<Service> service) {
  const std::lock_guard lock(mutex_);
  if (ended_) throw Error(ErrorKind::shut_down, "ringcomm has been shut down: no service can be added");
  TagMap::of_service(static_cast<int>(added_.size()));
  added_.push_back(std::move(service));
}

bool Services::refresh() {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    while (started_ < static_cast<int>(added_.size())) {
      const auto& service = added_[static_cast<std::size_t>(started_)];
      running_.push_back({service, std::make_unique<Mail>(transport_, TagMap::of_service(started_++))});
      for (const int rank : left_) service->left(rank, left_error(rank));
    }
  }
  return any();
}

bool Services::turn() {
  bool moved = false;
  for (const Running& running : ending_) running.mail->advance();
  for (const Running& running : running_) {
    running.mail->advance();
    moved |= running.service->turn(*running.mail);
  }
  const std::int64_t now = now_ns();
  if (moved) moved_ns_ = now;
  hot_ = now - moved_ns_ < kHot && listens();
  return moved;
}

bool Services::listens() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const Running& running) { return running.service->listens(); });
}

bool Services::moving() const {
  const auto moves = [](const Running& running) { return running.mail->moving(); };
  return hot_ || std::any_of(running_.begin(), running_.end(), moves) ||
         std::any_of(ending_.begin(), ending_.end(), moves);
}

Error Services::left_error(int rank) {
  return Error(ErrorKind::left, concat("rank ", rank, " has left (by shutdown or the end of the script)"), {rank});
}

void Services::left(int rank) {
  left_.insert(rank);
  for (const Running& running : running_) {
    running.mail->forget(rank);
    running.service->left(rank, left_error(rank));
  }
}

// Ends all services, including those that have not started.
void Services::end(const Error& error) {
  refresh();
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  for (Running& running : running_) running.service->end(error);
  std::move(running_.begin(), running_.end(), std::back_inserter(ending_));
  running_.clear();
  hot_ = false;
}

void Services::close() noexcept {
  for (const Running& running : ending_) running.mail->close();
}

}  // namespace ringcomm

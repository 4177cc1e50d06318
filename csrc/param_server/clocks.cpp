// Implements Clocks: waiting for workers, and the detection of dead ones.
#include "param_server/clocks.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "shm/futex.hpp"

namespace ringcomm::store {
namespace {
constexpr std::int64_t kSleep = 20'000'000;  // ns between two looks for dead processes
}

std::size_t Clocks::bytes(int workers) { return sizeof(Bell) + static_cast<std::size_t>(workers) * sizeof(Entry); }

Clocks::Clocks(void* memory, int workers, Node* node, std::vector<int> of_host)
    : bell_(*static_cast<Bell*>(memory)), entries_(reinterpret_cast<Entry*>(&bell_ + 1)), workers_(workers),
      node_(node), of_host_(std::move(of_host)) {}

void Clocks::set(int worker, std::int64_t clock) {
  entries_[worker].clock.store(clock, std::memory_order_seq_cst);
  wake();
}

std::int64_t Clocks::of(int worker) const { return entries_[worker].clock.load(std::memory_order_seq_cst); }

std::int64_t Clocks::least() const {
  std::int64_t least = kFinished;
  for (int worker = 0; worker < workers_; ++worker) least = std::min(least, of(worker));
  return least;
}

int Clocks::live() const {
  int count = 0;
  for (int worker = 0; worker < workers_; ++worker) count += of(worker) < kLost;
  return count;
}

void Clocks::wake() {
  bell_.ticks.fetch_add(1, std::memory_order_seq_cst);
  if (bell_.sleepers.load(std::memory_order_seq_cst) > 0) futex_wake(bell_.ticks);
}

std::uint32_t Clocks::ticks() const { return bell_.ticks.load(std::memory_order_seq_cst); }

void Clocks::sleep(std::uint32_t seen, std::int64_t longest_ns) {
  bell_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  futex_wait(bell_.ticks, seen, std::min(longest_ns, kSleep));
  bell_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Clocks::look_for_dead() {
  if (node_ == nullptr) return;
  for (const int rank : node_->dead()) {
    const int worker = of_host_.empty() ? rank : of_host_[static_cast<std::size_t>(rank)];
    if (worker < workers_ && of(worker) < kLost) set(worker, kLost);
  }
}

std::vector<int> Clocks::lost() const {
  std::vector<int> found;
  for (int worker = 0; worker < workers_; ++worker) {
    if (of(worker) == kLost) found.push_back(worker);
  }
  return found;
}

bool Clocks::wait(int worker, std::int64_t clock, std::int64_t longest_ns) {
  const std::int64_t deadline = now_ns() + longest_ns;
  for (;;) {
    const std::uint32_t seen = ticks();
    if ((worker < 0 ? least() : of(worker)) >= std::min(clock, kLost)) return true;
    const std::int64_t left = deadline - now_ns();
    if (left <= 0) return false;
    sleep(seen, left);
    look_for_dead();
  }
}

}  // namespace ringcomm::store

// Implements arrivals. A waiting rank increments `sleepers` before it reads the epoch; an arriving
// rank writes the epoch before it reads `sleepers`. Both are in one total order (seq_cst), so at
// least one of them sees the other and no wake-up is lost.
#include "shm/epochs.hpp"

#include <time.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/rank_text.hpp"
#include "base/trace.hpp"
#include "shm/futex.hpp"
#include "shm/peer_monitor.hpp"

namespace ringcomm {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Reads a clock that costs a few nanoseconds and ticks every few milliseconds, so that a waiting
// loop may read it at every poll.
std::int64_t coarse_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

constexpr std::uint32_t kLeftWithinCall = 3;  // Mailbox::state

}  // namespace

// Every rank of the slot starts from the same epoch: the slot is new, or its last user left equal
// epochs on all ranks. All ranks must have read the epoch before any rank publishes; this holds
// because the creation of a communicator is collective.
Epochs::Epochs(Node& node, int slot) : node_(node), slot_(slot) {
  if (slot < 0 || slot >= kMailboxes) throw invalid("communicator slot ", slot, " is outside 0..", kMailboxes - 1);
  Mailbox& mine = node_.mailbox(node_.rank(), slot_);
  epoch_ = mine.epoch.load(std::memory_order_relaxed);
  mine.state.store(0, std::memory_order_release);
}

std::uint32_t Epochs::publish() {
  const std::int64_t now = trace_clock();
  Mailbox& mine = node_.mailbox(node_.rank(), slot_);
  if (!std::exchange(header_stored_, true)) mine.header[parity()] = header_;
  mine.epoch.store(++epoch_, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) > 0) futex_wake(mine.epoch);
  trace_since("host work", now);  // recorded after the store, so that peers do not wait for the recording
  return epoch_;
}

// Returns whether the rank's epoch is before `epoch`. Epochs wrap around, and differ only by a few.
bool Epochs::lags(int rank, std::uint32_t epoch) {
  return static_cast<std::int32_t>(node_.mailbox(rank, slot_).epoch.load(std::memory_order_acquire) - epoch) < 0;
}

// Returns whether the rank left within this arrival's call. State and epoch share a cache line.
bool Epochs::left_within(int rank, std::uint32_t epoch) {
  const Mailbox& box = node_.mailbox(rank, slot_);
  return box.state.load(std::memory_order_acquire) == kLeftWithinCall &&
         static_cast<std::int32_t>(epoch - box.left_at.load(std::memory_order_relaxed)) > 0;
}

void Epochs::report_left(std::uint32_t epoch) {
  std::vector<int> ranks;
  for (int rank = 0; rank < node_.size(); ++rank) {
    if (left_within(rank, epoch)) ranks.push_back(group_rank(rank));
  }
  throw Error(ErrorKind::left,
              rank_text(ranks) + " closed the communicator during this call, before all ranks had called it", ranks);
}

void Epochs::leave_within_call() {
  Mailbox& mine = node_.mailbox(node_.rank(), slot_);
  mine.left_at.store(opened_at_, std::memory_order_relaxed);
  mine.state.store(kLeftWithinCall, std::memory_order_release);
  wake();
}

std::vector<int> Epochs::behind() {
  std::vector<int> ranks;
  for (int rank = 0; rank < node_.size(); ++rank) {
    if (lags(rank, epoch_)) ranks.push_back(group_rank(rank));
  }
  return ranks;
}

bool Epochs::reached(std::uint32_t epoch) {
  const int size = node_.size();
  for (int looked = 0; looked < size; ++looked, behind_ = behind_ + 1 == size ? 0 : behind_ + 1) {
    if (behind_ == node_.rank()) continue;  // its mailbox may be in a peer's cache, see header_of()
    if (lags(behind_, epoch)) {
      look_for_loss(epoch);
      return false;
    }
    for_each_line(node_.mailbox(behind_, slot_).payload[parity()], fetched_,
                  [](const void* line) { __builtin_prefetch(line); });
    if (left_within(behind_, epoch)) report_left(epoch);
  }
  trace_since("host wait", trace_clock());
  return true;
}

void Epochs::look_for_loss(std::uint32_t epoch) {
  const bool here = node_.mailbox(behind_, slot_).state.load(std::memory_order_acquire) == 0;
  const std::int64_t now = coarse_now_ns();
  if (epoch != awaited_ || looked_ns_ == 0) {  // no check in the first moments of a wait
    awaited_ = epoch;
    looked_ns_ = now;
  }
  if (here && now - looked_ns_ < kLookEvery) return;
  looked_ns_ = now;

  std::vector<int> died, left, failed;
  const auto state_of = [&](int rank) { return node_.mailbox(rank, slot_).state.load(std::memory_order_acquire); };
  std::vector<std::uint32_t> states;
  for (int rank = 0; rank < node_.size(); ++rank) states.push_back(state_of(rank));
  // Read after the states, to report a dead peer and not a rank that failed because of it.
  const std::vector<int> ended = node_.dead();
  for (int rank = 0; rank < node_.size(); ++rank) {
    const bool dead = std::find(ended.begin(), ended.end(), rank) != ended.end();
    // the rank may have left before its process ended
    const std::uint32_t state = dead ? state_of(rank) : states[static_cast<std::size_t>(rank)];
    // lags() is called last: the rank may have arrived, and left after that
    if ((state == 0 && !dead) || !lags(rank, epoch)) continue;
    (state == 2 ? failed : state != 0 ? left : died).push_back(group_rank(rank));
  }
  if (!died.empty()) throw died_error(died);
  if (!failed.empty()) throw failed_error(failed);
  if (!left.empty()) throw left_error(left);
}

void Epochs::look_for_failures() const {
  std::vector<int> failed;
  for (int rank = 0; rank < node_.size(); ++rank) {
    if (node_.mailbox(rank, slot_).state.load(std::memory_order_acquire) == 2) failed.push_back(group_rank(rank));
  }
  if (!failed.empty()) throw failed_error(failed);
}

void Epochs::sleep(std::uint32_t epoch, std::int64_t longest_ns) {
  if (longest_ns <= 0) return;
  for (int looked = 0; looked < node_.size(); ++looked) {
    const int rank = (behind_ + looked) % node_.size();
    if (!lags(rank, epoch)) continue;
    Mailbox& box = node_.mailbox(rank, slot_);
    box.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = box.epoch.load(std::memory_order_seq_cst);
    const bool still = static_cast<std::int32_t>(seen - epoch) < 0 && box.state.load(std::memory_order_acquire) == 0;
    if (still) futex_wait(box.epoch, seen, longest_ns);
    box.sleepers.fetch_sub(1, std::memory_order_release);
    return;
  }
}

// Wakes sleeping peers. The addition of 0 is ordered with a sleeper's increment. If the increment
// was first, this call sees the sleeper; otherwise the sleeper sees the new state. A rank that is
// just about to sleep may miss the wake-up, and then sleeps until its timeout.
void Epochs::wake() {
  Mailbox& mine = node_.mailbox(node_.rank(), slot_);
  if (mine.sleepers.fetch_add(0, std::memory_order_acq_rel) > 0) futex_wake(mine.epoch);
}

}  // namespace ringcomm

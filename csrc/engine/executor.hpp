// Runs the operations that a process set has agreed on. It executes verdicts in order, one at a
// time, on the set's channel. The worker uses it through NamedSet.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "engine/in_flight.hpp"
#include "engine/plans/bucket.hpp"
#include "engine/plans/plan_table.hpp"

namespace ringcomm {

// A verdict to execute. A verdict without parts that does not end a join is only counted.
struct Decided {
  std::vector<Agreed> parts{};
  std::vector<int> placeholder_ranks{};
  int last_joined = -1;  // rank that joined last, once all have joined; else -1
};

class Executor {
 public:
  // `channel` is null if this rank is not in the set; then nothing is ever agreed.
  Executor(const Context& context, InFlight& in_flight, const PlanTable& plans, std::unique_ptr<Channel> channel,
           std::shared_ptr<Node> node);

  void push(Decided decided) { queue_.push_back(std::move(decided)); }
  // Continues until `end` verdicts have been executed; returns true if anything moved. Throws fatal
  // errors, and Error(left), after which the caller must call drop().
  bool turn(std::uint64_t end);
  void drop() noexcept;                                 // abandons agreed operations
  std::uint64_t executed() const { return executed_; }  // verdicts
  bool idle() const { return !current_ && queue_.empty(); }
  bool waits() const { return !queue_.empty(); }  // a verdict waits until another has run
  bool moving() const { return task_ != nullptr; }
  bool far() const { return channel_ && !channel_->on_one_host(); }

 private:
  bool look();  // advances the current verdict; true if anything moved
  bool end_join();
  void end_current(const std::exception_ptr& error);
  void count_time(const std::vector<Agreed>& parts) const;  // for the call that has ended

  const Context& context_;
  InFlight& in_flight_;
  const PlanTable& plans_;
  const std::unique_ptr<Channel> channel_;
  ArenaRoom buffer_;
  std::deque<Decided> queue_;
  std::optional<Decided> current_;
  std::unique_ptr<Task> task_;  // runs current_
  std::uint64_t executed_ = 0;
};

}  // namespace ringcomm

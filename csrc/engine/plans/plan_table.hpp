// The open plans of a process set, each with its own stream of message tags. NamedSet owns it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/context.hpp"
#include "shm/descriptor.hpp"

namespace ringcomm {

class PlanRun;

class PlanTable {
 public:
  explicit PlanTable(Context& context);
  ~PlanTable();

  // ---- any thread, with the context's mutex held
  bool has_room() const;
  bool empty() const { return open_.load(std::memory_order_acquire) == 0; }
  // Returns a stream for a plan of that name: the one unused for longest, which is equal on all
  // ranks. Throws Error(invalid).
  std::size_t free_stream(const std::string& name) const;
  std::uint64_t past_steps(const std::string& name) const;  // returns the steps of closed plans of that name
  void open(std::shared_ptr<PlanRun> plan);
  void close(const PlanRun& plan);
  const PlanRun* begun() const;     // a plan with a step between begin() and finish(); null: none
  const PlanRun* stepping() const;  // a plan with a step that has not finished; null: none

  // ---- the worker
  std::vector<std::shared_ptr<PlanRun>> all() const;
  std::shared_ptr<PlanRun> find(const std::string& name, const Descriptor& signature) const;  // null: not found
  bool answering() const;  // a plan's step is in progress, to which this rank contributes identities
  bool moving() const;
  std::vector<std::pair<std::string, std::uint64_t>> steps() const;  // completed steps of each name

 private:
  template <class Is>
  const PlanRun* any(Is&& is) const;

  Context& context_;
  // Guarded by the context's mutex.
  std::vector<std::shared_ptr<PlanRun>> by_stream_;  // null: free
  std::size_t next_ = 0;
  std::map<std::string, std::uint64_t> past_steps_;
  // Number of open plans. A turn reads it without the mutex, because most sets have none.
  std::atomic<int> open_{0};
};

}  // namespace ringcomm

// The plans of a process set, each on a stream of message tags of its own.
#pragma once

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
  // A stream for a plan of that name: the one unused for longest, the same on every rank. Throws Error(invalid).
  std::size_t free_stream(const std::string& name) const;
  std::uint64_t past_steps(const std::string& name) const;  // of plans of that name that have been closed
  void open(std::shared_ptr<PlanRun> plan);
  void close(const PlanRun& plan);
  const PlanRun* begun() const;     // a plan of which a step has begun and has not been given to the worker whole
  const PlanRun* stepping() const;  // or has not finished

  // ---- the worker
  std::vector<std::shared_ptr<PlanRun>> all() const;
  std::shared_ptr<PlanRun> find(const std::string& name, const Descriptor& signature) const;  // null: there is none
  bool answering() const;  // in some plan's step, for ranks that still have data
  bool moving() const;
  std::vector<std::pair<std::string, std::uint64_t>> steps() const;  // of each name, completed

 private:
  template <class Is>
  const PlanRun* any(Is&& is) const;

  Context& context_;
  // Guarded by the context's mutex.
  std::vector<std::shared_ptr<PlanRun>> by_stream_;  // null: free
  std::size_t next_ = 0;
  std::map<std::string, std::uint64_t> past_steps_;
};

}  // namespace ringcomm

// Connects graphs with a process set. A graph outlives shutdown() and the engine of its set. The
// graph holds a SetLink, which is connected while the set is in use, and runs with the engine that
// the set has at that time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine/engine.hpp"

namespace ringcomm {

class SetLink {
 public:
  struct Live {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<Worker> worker;
    int set = -1, rank = -1, size = 0;
    std::uint64_t epoch = 0;  // number of the connection; requests prepared for an earlier one are invalid
  };

  void connect(std::shared_ptr<Engine> engine, std::shared_ptr<Worker> worker, int set, int rank, int size) {
    const std::lock_guard lock(mutex_);
    live_ = {std::move(engine), std::move(worker), set, rank, size, live_.epoch + 1};
    runs_.clear();
  }
  void disconnect() {
    const std::lock_guard lock(mutex_);
    live_ = {nullptr, nullptr, -1, -1, 0, live_.epoch};
  }
  Live live() const {  // throws Error(shut_down)
    const std::lock_guard lock(mutex_);
    if (live_.engine) return live_;
    throw Error(ErrorKind::shut_down, "ringcomm has not been initialized, or has been shut down; use ringcomm.init().");
  }
  // Counts a run of `name`. Returns the run's number if ranks compare their replicas in it,
  // otherwise 0. Ranks compare in the second run, when the broadcast after a program's first step
  // is done, and in every `every`th run after that. Runs are counted from connect() or restart().
  // The counts are equal on all ranks, because each run precedes a reduction.
  std::uint64_t due(const std::string& name, std::uint64_t every) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t run = ++runs_[name];
    return every > 0 && run >= 2 && (run - 2) % every == 0 ? run : 0;
  }
  void restart() {  // called when all ranks have joined: their numbers of runs may differ
    const std::lock_guard lock(mutex_);
    runs_.clear();
  }

 private:
  mutable std::mutex mutex_;
  Live live_;
  std::map<std::string, std::uint64_t> runs_;
};

}  // namespace ringcomm

// The services of an engine, each with its Mail. Engine::State gives them turns and reports
// departures.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "engine/worker/service.hpp"

namespace ringcomm {

class Services {
 public:
  explicit Services(Transport& transport) : transport_(transport) {}

  void add(std::shared_ptr<Service> service);  // any thread. As Engine::add_service

  // ---- the worker
  bool refresh();  // takes over added services; false: there are none
  bool any() const { return !running_.empty(); }
  bool turn();  // true if anything moved. Throws fatal errors
  bool moving() const;
  bool listens() const;
  bool hot() const { return hot_; }  // active a moment ago: more messages are likely
  void left(int rank);               // the rank has left the job
  void end(const Error& error);      // no service gets another turn
  void close() noexcept;             // cancels messages that are still being sent

 private:
  struct Running {
    std::shared_ptr<Service> service;
    std::unique_ptr<Mail> mail;
  };
  static Error left_error(int rank);

  Transport& transport_;
  std::mutex mutex_;  // guards the next two
  std::vector<std::shared_ptr<Service>> added_;
  bool ended_ = false;
  // Used by the worker.
  std::vector<Running> running_, ending_;
  int started_ = 0;
  std::int64_t moved_ns_ = 0;
  bool hot_ = false;
  std::set<int> left_;
};

}  // namespace ringcomm

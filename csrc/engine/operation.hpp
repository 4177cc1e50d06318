// What a caller holds of work under way.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/account.hpp"

namespace ringcomm {

class Operation {
 public:
  explicit Operation(std::string name) : name(std::move(name)) {}
  bool done() const { return done_.load(std::memory_order_acquire); }
  bool wait(double seconds);  // true once done; negative: for ever; never throws what the operation met
  void finish(std::exception_ptr error = nullptr);     // the first one counts
  void renew();                                        // as if new; nobody else holds it
  std::exception_ptr error() const { return error_; }  // after done()

  const std::string name;
  std::atomic<int> waiters{0};  // threads in wait_for() without a time limit

 private:
  std::atomic<bool> done_{false};
  std::exception_ptr error_;

 public:
  // Results of a size that only agreement decides: the core's memory (64-byte aligned), and rows (dimension 0) per
  // rank: allgather: of each rank's part; alltoall: received from each rank; reducescatter: of each rank's result.
  // A plan's step: counts[i] ranks had item i. Read after done().
  std::shared_ptr<std::byte[]> output;
  std::size_t output_bytes = 0;
  std::vector<std::size_t> counts;
  int last_joined = -1;  // of a join: the rank that was last, of the engine's transport
  // In which what a caller waits for this is counted; null where nobody looks at a clock. Read after done().
  std::shared_ptr<Entry> entry;
};

}  // namespace ringcomm

// Counts the messages, bytes and time of this rank, by operation and by the algorithm that ran it.
// The code that moves the data writes the counts; the statistics of a communicator read them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ringcomm {

// A counter that one thread at a time writes and any thread reads. Relaxed order: it costs what a
// plain number costs.
class Count {
 public:
  void operator+=(std::uint64_t more) { value_.store(value_.load(kOrder) + more, kOrder); }
  std::uint64_t value() const { return value_.load(kOrder); }
  std::uint64_t take() {  // returns the value and resets it to 0
    const std::uint64_t before = value();
    value_.store(0, kOrder);
    return before;
  }

 private:
  static constexpr auto kOrder = std::memory_order_relaxed;
  std::atomic<std::uint64_t> value_{0};
};

// Messages of a transport, in one direction.
struct Traffic {
  Count messages, bytes;
  void add(std::uint64_t nbytes) {
    messages += 1;
    bytes += nbytes;
  }
  void take(Traffic& other) {
    if (other.messages.value() == 0) return;
    messages += other.messages.take();
    bytes += other.bytes.take();
  }
};

// Effect of encoders (wire formats) on the sent elements.
struct EncodingCount {
  Count saved;  // bytes that encoding saved; negative (modulo 2^64) if it made short blocks longer
  Count ns;     // time of encoding and decoding, in ns; counted only if the account is timed
  void take(EncodingCount& other) {
    if (other.saved.value() != 0) saved += other.saved.take();
    if (other.ns.value() > 0) ns += other.ns.take();
  }
};

// Counts of one operation, run by one algorithm.
struct Entry {
  Entry(std::string_view its_operation, std::string_view its_algorithm)
      : operation(its_operation), algorithm(its_algorithm) {}
  const std::string operation, algorithm;
  Count calls;
  Traffic sent, received;
  Count memory;  // bytes read from, or written to, memory that ranks of this host share
  EncodingCount encoding;

  // Thread-safe. Called only if the account is timed.
  void add_wait(std::int64_t ns) { waited_ns_.fetch_add(ns, std::memory_order_relaxed); }  // the caller only waited
  void add_time(std::int64_t ns) { lasted_ns_.fetch_add(ns, std::memory_order_relaxed); }  // submission to completion
  // Returns calls; messages and bytes sent; messages and bytes received; bytes of shared memory;
  // bytes saved; ns of encoding; ns waited; ns from submission to completion.
  std::vector<std::int64_t> numbers() const;

 private:
  std::atomic<std::int64_t> waited_ns_{0}, lasted_ns_{0};
};

class Account {
 public:
  explicit Account(bool timed = false) : timed_(timed) {}
  bool timed() const { return timed_; }  // false: no code reads a clock for the account
  // Returns the entry, which is created if missing. Thread-safe. The caller must hold the pointer
  // while it writes to the entry.
  std::shared_ptr<Entry> entry(std::string_view operation, std::string_view algorithm);
  std::vector<std::shared_ptr<Entry>> entries() const;

 private:
  const bool timed_;
  mutable std::mutex mutex_;  // guards entries_
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace ringcomm

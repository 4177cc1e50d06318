// What this rank has moved, counted where it is moved: by operation, and by the algorithm that moved it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ringcomm {

// Written by one thread at a time, read by any: it costs what a plain number does.
class Count {
 public:
  void operator+=(std::uint64_t more) { value_.store(value_.load(kOrder) + more, kOrder); }
  std::uint64_t value() const { return value_.load(kOrder); }
  std::uint64_t take() {  // and begins anew
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

// What codecs have made of elements.
struct EncodingCount {
  Count saved;  // bytes that were not sent because they were encoded; a short piece may cost some (modulo 2^64)
  Count ns;     // encoding and decoding; where the account is timed
  void take(EncodingCount& other) {
    if (other.saved.value() != 0) saved += other.saved.take();
    if (other.ns.value() > 0) ns += other.ns.take();
  }
};

// One operation by one algorithm.
struct Entry {
  Entry(std::string_view its_operation, std::string_view its_algorithm)
      : operation(its_operation), algorithm(its_algorithm) {}
  const std::string operation, algorithm;
  Count calls;
  Traffic sent, received;
  Count memory;  // bytes read from, or written to, memory that this rank shares with others of its host
  EncodingCount encoding;

  // Any thread; where the account is timed.
  void add_wait(std::int64_t ns) { waited_ns_.fetch_add(ns, std::memory_order_relaxed); }  // a caller did nothing else
  void add_time(std::int64_t ns) { lasted_ns_.fetch_add(ns, std::memory_order_relaxed); }  // submission to completion
  // Calls; messages and bytes sent; received; bytes of memory, saved; nanoseconds encoding, waited,
  // lasted.
  std::vector<std::int64_t> numbers() const;

 private:
  std::atomic<std::int64_t> waited_ns_{0}, lasted_ns_{0};
};

class Account {
 public:
  explicit Account(bool timed = false) : timed_(timed) {}
  bool timed() const { return timed_; }  // else nobody looks at a clock
  // Any thread. Who writes to an entry holds it.
  std::shared_ptr<Entry> entry(std::string_view operation, std::string_view algorithm);
  std::vector<std::shared_ptr<Entry>> entries() const;

 private:
  const bool timed_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace ringcomm

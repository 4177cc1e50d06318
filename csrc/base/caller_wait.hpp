// CallerWait checks for Ctrl-C and reports stalls while a user's call waits. Ordered calls,
// messages and the operations that the worker runs all use it.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace ringcomm {

// Prints a report on stderr, repeatedly, while an operation makes no progress for long.
class StallReport {
 public:
  struct Text {
    std::string what, why;  // "rank 3 has been waiting 60 s in WHAT; WHY", without "; WHY" if `why` is empty
  };

  StallReport(int rank, double every_seconds);  // every_seconds 0: prints no report
  void moved() { since_ = 0; }
  // Records that there is no progress at `now` (in now_ns()'s time). If a report is due, calls
  // `text`, which returns a Text, and prints it.
  template <class MakeText>
  void blocked(std::int64_t now, MakeText&& text) {
    if (since_ == 0) since_ = reported_ = now;
    if (every_ <= 0 || now - reported_ < every_) return;
    reported_ = now;
    print(text(), (now - since_) / 1'000'000'000);
  }

 private:
  void print(const Text& text, std::int64_t seconds) const;

  const int rank_;
  const std::int64_t every_;
  std::int64_t since_ = 0, reported_ = 0;
};

// The wait of a user's call: checks for Ctrl-C and reports stalls at intervals.
class CallerWait {
 public:
  // `interrupted` returns whether Ctrl-C was pressed; may be null.
  explicit CallerWait(bool (*interrupted)(), int rank = 0, double warn_seconds = 0)
      : interrupted_(interrupted), stall_(rank, warn_seconds) {}

  void moved() { stall_.moved(); }
  std::int64_t next_check_ns() const { return checked_ns_ + kCheckEvery; }  // when look() checks for Ctrl-C next
  // Checks for Ctrl-C and reports stalls; the waiting caller calls it repeatedly. Throws
  // Error(interrupted) after Ctrl-C. `text`: see StallReport::blocked().
  template <class MakeText>
  void look(std::int64_t now, MakeText&& text) {
    if (checked_ns_ == 0) checked_ns_ = now;
    if (now - checked_ns_ >= kCheckEvery) {
      checked_ns_ = now;
      if (interrupted_ && interrupted_()) throw Error(ErrorKind::interrupted, "interrupted");
    }
    stall_.blocked(now, text);
  }
  void look(std::int64_t now) {
    look(now, [] { return StallReport::Text(); });
  }

 private:
  static constexpr std::int64_t kCheckEvery = 50'000'000;  // ns

  bool (*const interrupted_)();
  StallReport stall_;
  std::int64_t checked_ns_ = 0;
};

}  // namespace ringcomm

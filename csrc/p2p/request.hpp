// One send or receive of one rank, and what becomes of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/account.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"

namespace ringcomm {

// Not MPI's numbers, which differ from MPI to MPI: who gives those by mistake hears of it.
inline constexpr int kAnySource = -11, kAnyTag = -1, kProcNull = -12;

// What a message says of itself before its data.
struct Envelope {
  int source = kAnySource, tag = kAnyTag;
  std::uint64_t nbytes = 0;
};

inline bool accepts(int source, int tag, const Envelope& envelope) {
  return (source == kAnySource || source == envelope.source) && (tag == kAnyTag || tag == envelope.tag);
}

// The caller's; lives, as its data does, until it is done(). Till then everything but done() is guarded by the owner's
// mutex, and afterwards it is the caller's.
struct Request {
  enum class Kind : std::uint8_t { send, receive };
  Request(Kind k, int p, int t, void* d, std::uint64_t n) : kind(k), peer(p), tag(t), data(d), nbytes(n) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const Kind kind;
  const int peer, tag;                // of a receive they may be kAnySource, kAnyTag
  void* const data;                   // a send's is only read
  const std::uint64_t nbytes;         // of the message, or the room for one
  std::string among;                  // names the group of ranks in messages; "": the communicator
  Envelope status;                    // of a receive, after done()
  bool cancelled = false;             // after done()
  bool lent = false;                  // after done(), of one that failed: something may use its data even so, for ever
  std::optional<Error> error;         // after done()
  std::atomic<bool> reported{false};  // the caller has received the outcome

  bool done() const { return done_.load(std::memory_order_acquire); }
  void finish() {
    if (entry && begun_ns != 0) entry->add_time(now_ns() - begun_ns);
    if (traced_ns != 0) record();
    done_.store(true, std::memory_order_release);
  }
  std::shared_ptr<Request> hand_over();  // the rest of it to its `successor`, which is returned
  void fail(const Error& why);           // with `why`, after a text that says what this is

  // Of one that was interrupted while its memory was in use: has that memory until it is done(), in the background.
  std::shared_ptr<Request> successor;

  // The path's, while it is under way.
  std::uint64_t id = 0, moved = 0;
  std::uint64_t target = 0;                  // of a send that was granted: where it goes
  Entry* entry = nullptr;                    // in which it is counted, once that is known
  std::int64_t begun_ns = 0, traced_ns = 0;  // 0: nobody looks at a clock; no timeline is written

 private:
  void record() const;  // in the timeline
  std::atomic<bool> done_{false};
};

// "recv(source=1, tag=any) of at most 8 bytes", "send(dest=0, tag=5) of 8 bytes"
std::string text_of(const Request& request);
std::string text_of_probe(int source, int tag);
Error given_up_error(const Envelope& envelope);         // of a receive whose message was withdrawn
std::string text_of_message(const Envelope& envelope);  // "the message of rank 1 with tag 5, 8 bytes"

}  // namespace ringcomm

// One send or receive of a rank, its progress and its outcome. Callers of PointToPoint own
// requests.
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

// These differ from the constants of all MPI libraries, so a constant of MPI that is passed by
// mistake is an error.
inline constexpr int kAnySource = -11, kAnyTag = -1, kProcNull = -12;

// The description of a message that precedes its data.
struct Envelope {
  int source = kAnySource, tag = kAnyTag;
  std::uint64_t nbytes = 0;
};

inline bool accepts(int source, int tag, const Envelope& envelope) {
  return (source == kAnySource || source == envelope.source) && (tag == kAnyTag || tag == envelope.tag);
}

// A send or receive. The caller owns it, and keeps it and its data until done(). Until then the
// mutex of PointToPoint guards all fields, except done(); afterwards only the caller uses them.
struct Request {
  enum class Kind : std::uint8_t { send, receive };
  Request(Kind k, int p, int t, void* d, std::uint64_t n) : kind(k), peer(p), tag(t), data(d), nbytes(n) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const Kind kind;
  const int peer, tag;                // in a receive: may be kAnySource, kAnyTag
  void* const data;                   // in a send: is only read
  const std::uint64_t nbytes;         // size of the message, or capacity of the receive
  std::string among;                  // names the group of ranks in messages; "": the communicator
  Envelope status;                    // envelope of a receive, after done()
  bool cancelled = false;             // after done()
  bool lent = false;                  // after done(), if it failed: the transport may still use the data, at any time
  std::optional<Error> error;         // after done()
  std::atomic<bool> reported{false};  // the caller has read the outcome

  bool done() const { return done_.load(std::memory_order_acquire); }
  void finish() {
    if (entry && begun_ns != 0) entry->add_time(now_ns() - begun_ns);
    if (traced_ns != 0) record();
    done_.store(true, std::memory_order_release);
  }
  std::shared_ptr<Request> hand_over();  // creates and returns a `successor`, which takes over the remaining work
  void fail(const Error& why);           // with `why`, prefixed by a text that names the request

  // The request that continues this one in the background after an interruption. It uses this
  // request's memory until it is done.
  std::shared_ptr<Request> successor;

  // Used by the route, while the request is in progress.
  std::uint64_t id = 0, moved = 0;
  std::uint64_t target = 0;                  // in a granted send: the offset in the receiver's arena
  Entry* entry = nullptr;                    // entry that counts this request; null until known
  std::int64_t begun_ns = 0, traced_ns = 0;  // 0: timing is disabled; no timeline is written

 private:
  void record() const;  // adds it to the timeline
  std::atomic<bool> done_{false};
};

// "recv(source=1, tag=any) of at most 8 bytes", "send(dest=0, tag=5) of 8 bytes"
std::string text_of(const Request& request);
std::string text_of_probe(int source, int tag);
Error given_up_error(const Envelope& envelope);         // for a receive that matched a withdrawn message
std::string text_of_message(const Envelope& envelope);  // "the message from rank 1 with tag 5 (8 bytes)"

}  // namespace ringcomm

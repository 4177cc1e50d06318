// What a rank asks of shards in memory that it does not share.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "engine/operation.hpp"
#include "param_server/messages.hpp"
#include "transport/mail.hpp"

namespace ringcomm::store {

// One request. Arrays are the caller's, and live until it is done(). After that: what the server said.
struct Asked final : Operation {
  Asked() : Operation("store") {}
  int peer = 0;
  Head head;  // but for `number`, `begins` and `ends`, and what arrays there are
  std::vector<Range> ranges;
  std::size_t element = sizeof(float);
  const void *gradient = nullptr, *pulled = nullptr;
  void* result = nullptr;

  Arrival arrival = Arrival::applied;
  std::uint64_t version = 0, group = 0;
};

// Cuts requests into segments, which a server applies and answers as they come, so that both directions of a link are
// busy; and lets few of them be under way to each server, which therefore holds little, and takes the link from no
// other. Segments are so short that MPI sends them unasked: its questions wait behind data.
class Client {
 public:
  static constexpr std::size_t kSegment = 48 << 10;  // bytes of one array: whole stripes
  static constexpr std::size_t kUnderWay = 8;

  void ask(std::shared_ptr<Asked> asked);  // any thread. One that cannot be sent any more is done at once, and failed

  // ---- the worker
  bool send(Mail& mail);  // what may be. True if anything was
  void answered(int peer, const std::vector<std::byte>& answer);
  void left(int rank, const Error& why);
  void end(const Error& why);
  bool waits() const { return waits_; }  // for an answer

 private:
  struct Cut {  // of one that is being sent: what is left begins in ranges[range], after `within` of its elements
    std::size_t range = 0, within = 0, sent = 0;
    bool begun = false;
  };
  struct Segment {
    std::shared_ptr<Asked> asked;
    std::size_t at = 0, count = 0;  // elements
    bool ends = false;
  };
  struct Peer {
    std::deque<std::shared_ptr<Asked>> waiting;
    Cut cut;  // of the first
    std::deque<Segment> under_way;
    std::uint64_t number = 0;
    std::exception_ptr gone;
  };
  void send_segment(int rank, Peer& peer, Mail& mail);
  static std::vector<std::byte> letter_of(const Asked& asked, Head head, const std::vector<Range>& ranges,
                                          const Segment& segment);
  static void fail(Peer& peer, std::exception_ptr why);

  std::mutex mutex_;  // guards the next two
  std::vector<std::shared_ptr<Asked>> posted_;
  std::exception_ptr over_;
  std::map<int, Peer> peers_;
  bool waits_ = false;
};

}  // namespace ringcomm::store

#include "device/aware_route.hpp"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "base/short_sleeps.hpp"
#include "call/channel.hpp"
#include "call/direct_messages.hpp"
#include "device/aware_pieces.hpp"
#include "device/copies.hpp"
#include "device/flow.hpp"
#include "device/staged_task.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

constexpr auto kEventNap = 20us;

struct Aware {
  explicit Aware(Device& device) : flow(device), scratch(device, flow.stream) {}
  Flow flow;
  DeviceRoom scratch;
  // Bytes that every rank is known to have had room for, in scratch and for fragments; the same on all ranks.
  std::size_t scratch_granted = 0, packed_granted = 0;
};

class AwareTask final : public Task {
 public:
  AwareTask(Channel& channel, Aware& aware, Call call, std::shared_ptr<DevicePlace> place)
      : channel_(channel), aware_(aware), asked_(call), call_(std::move(call)), place_(std::move(place)),
        ranks_(channel.size()), me_(channel.rank()), pieces_(call_, me_, ranks_), messages_(channel.context()) {
    if (call_.op == Op::average) call_.post.divisor *= ranks_;
    call_.place = nullptr;
  }
  ~AwareTask() override { abandon(); }

  Progress advance() override {
    const Device::Current current(aware_.flow.device);  // MPI copies in it
    const Progress progress = look();
    if (progress != Progress::done) return progress;
    return next() ? Progress::moved : Progress::done;
  }

  void abandon() noexcept override {
    if (std::exchange(ended_, true)) return;
    if (task_)
      task_->abandon();
    else if (phase_ != Phase::begin)
      channel_.context().book_failure();
    task_.reset();
    if (messages_.abandon()) {
      aware_.scratch.strand();
      aware_.flow.strand();
    }
    aware_.flow.settle();
  }

  void nap(std::chrono::nanoseconds longest) override {
    if (task_) return task_->nap(longest);
    if (phase_ != Phase::ready && phase_ != Phase::reduced) return Task::nap(longest);
    const ShortSleeps precise;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(longest, kEventNap));
  }
  std::string_view label() const override { return call_.name.empty() ? name_of(call_.collective) : call_.name; }

 private:
  enum class Phase : std::uint8_t { begin, compare, room, by_the_host, ready, exchange, reduced, results };

  // At what the phase waits for.
  Progress look() {
    if (task_) return task_->advance();
    if (phase_ == Phase::begin) return Progress::done;
    if (phase_ == Phase::exchange || phase_ == Phase::results) return messages_.advance();
    return event_.happened() ? Progress::done : Progress::blocked;
  }

  // What follows the phase that has ended; false: nothing.
  bool next() {
    task_.reset();
    switch (phase_) {
      case Phase::begin:
        return call_.agreed ? prepare() : start(Phase::compare, comparison_of(asked_)), true;
      case Phase::compare:
        return prepare(), true;
      case Phase::room:
        return look_for_room(), true;
      case Phase::ready:
        return exchange(), true;
      case Phase::exchange:
        if (computes(call_.collective)) reduce();
        if (!computes(call_.collective) || call_.collective == Collective::reducescatter) return end();
        return wait_for_stream(Phase::reduced), true;
      case Phase::reduced:
        return exchange_results(), true;
      case Phase::results:
        return end();
      case Phase::by_the_host:
        break;
    }
    ended_ = true;
    return false;
  }

  bool end() {
    const Target last = pieces_.last();
    copy(call_.output, {last.data, last.nbytes});
    aware_.flow.unpack(call_, asked_.fragments);
    aware_.flow.finish(*place_);
    ended_ = true;
    return false;
  }

  // One rank's GPU alone may be full: where more is needed than before, ranks tell each other whether they have it.
  void prepare() {
    roomy_ = 1;
    packed_ = call_.fragments.empty() ? 0 : call_.count * size_of(call_.dtype);
    try {
      aware_.flow.begin(call_, *place_);
      pieces_.lie_in(aware_.scratch.at_least(std::max(pieces_.common_bytes(), pieces_.own_bytes())));
    } catch (const std::bad_alloc&) {
      roomy_ = 0;
    }
    if (pieces_.common_bytes() > aware_.scratch_granted || packed_ > aware_.packed_granted) {
      Call call = part_of(call_.name + "/room", Collective::allreduce);
      call.op = Op::min;
      call.input = call.output = &roomy_;
      call.count = 1;
      start(Phase::room, std::move(call));
    } else if (roomy_) {
      wait_for_stream(Phase::ready);
    } else {
      throw Error(ErrorKind::transport, "this rank's GPU has no memory left for an exchange in place");
    }
  }

  void look_for_room() {
    aware_.scratch_granted = roomy_ ? std::max(aware_.scratch_granted, pieces_.common_bytes()) : 0;
    aware_.packed_granted = roomy_ ? std::max(aware_.packed_granted, packed_) : 0;
    if (roomy_) return wait_for_stream(Phase::ready);
    asked_.agreed = asked_.part = true;
    phase_ = Phase::by_the_host;
    task_ = make_staged(channel_, asked_, device_copies(place_), false);
  }

  void start(Phase phase, Call call) {
    phase_ = phase;
    task_ = channel_.start(std::move(call));
  }
  void wait_for_stream(Phase phase) {
    phase_ = phase;
    event_ = aware_.flow.device.record(aware_.flow.stream);
  }

  // act(to, from): all pairs in turn, so that not all ranks send to one at first.
  template <class Act>
  void each_peer(Phase phase, Act act) {
    phase_ = phase;
    messages_.begin();
    for (int step = 1; step < ranks_; ++step) act((me_ + step) % ranks_, (me_ + ranks_ - step) % ranks_);
  }

  void exchange() {
    each_peer(Phase::exchange, [&](int to, int from) {
      const Source sent = pieces_.outgoing(to);
      const Target received = pieces_.incoming(from);
      messages_.send(to, sent.data, sent.nbytes);
      messages_.receive(from, received.data, received.nbytes);
    });
    if (!computes(call_.collective)) copy(pieces_.incoming(me_).data, pieces_.outgoing(me_));
  }

  void exchange_results() {
    each_peer(Phase::results, [&](int to, int from) {
      const Target sent = pieces_.result_for(to), received = pieces_.result_from(from);
      if (pieces_.gets(to)) messages_.send(to, sent.data, sent.nbytes);
      if (pieces_.gets(me_)) messages_.receive(from, received.data, received.nbytes);
    });
  }

  void copy(void* to, const Source& from) const {
    if (from.nbytes > 0 && to != from.data) aware_.flow.device.copy(to, from.data, from.nbytes, aware_.flow.stream);
  }

  void reduce() {
    std::vector<const void*> sources;
    for (int rank = 0; rank < ranks_; ++rank)
      sources.push_back(rank == me_ ? pieces_.outgoing(rank).data : pieces_.incoming(rank).data);
    if (!is_scan(call_.collective)) return reduce(sources, me_);
    // This rank's comes last: its result may lie where its input does.
    for (int step = 1; step <= ranks_; ++step) {
      const int rank = (me_ + step) % ranks_;
      const int count = call_.collective == Collective::scan ? rank + 1 : rank;
      if (count > 0) reduce(std::span(sources).first(static_cast<std::size_t>(count)), rank);
    }
  }
  void reduce(std::span<const void* const> sources, int rank) {
    void* const result = pieces_.result_for(rank).data;
    aware_.flow.launcher.reduce(sources, {&result, 1}, {0, pieces_.reduced()}, call_.dtype, call_.op, call_.pre,
                                call_.post, aware_.flow.stream);
  }

  Channel& channel_;
  Aware& aware_;
  Call asked_, call_;  // as it came; with its array in one piece
  const std::shared_ptr<DevicePlace> place_;
  const int ranks_, me_;
  AwarePieces pieces_;
  DirectMessages messages_;
  Phase phase_ = Phase::begin;
  Event event_;
  std::uint8_t roomy_ = 1;
  std::size_t packed_ = 0;
  std::unique_ptr<Task> task_;
  bool ended_ = false;
};

class AwareRoute final : public Route {
 public:
  explicit AwareRoute(Device& device) : Route("aware"), aware_(device) {}
  // What asks to travel encoded does so by way of the host.
  bool takes(const Call& call) const override { return !call.wire && kernels_take(call); }
  std::unique_ptr<Task> start(Channel& channel, Call call, std::shared_ptr<DevicePlace> place) override {
    return std::make_unique<AwareTask>(channel, aware_, std::move(call), std::move(place));
  }

 private:
  Aware aware_;
};

}  // namespace

std::unique_ptr<Route> make_aware_route(Device& device) { return std::make_unique<AwareRoute>(device); }

}  // namespace ringcomm

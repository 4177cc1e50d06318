#include "device/aware_route.hpp"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "base/short_sleeps.hpp"
#include "call/direct_messages.hpp"
#include "device/aware_pieces.hpp"
#include "device/copies.hpp"
#include "device/route_task.hpp"
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

class AwareTask final : public RouteTask {
 public:
  AwareTask(Channel& channel, Aware& aware, Call call, std::shared_ptr<DevicePlace> place)
      : RouteTask(channel, aware.flow, std::move(call), std::move(place)), aware_(aware), ranks_(channel.size()),
        me_(channel.rank()), pieces_(call_, me_, ranks_), messages_(channel.context()) {
    if (!asked_.agreed) start(comparison_of(asked_));
  }
  ~AwareTask() override { AwareTask::abandon(); }

  Progress advance() override {
    const Device::Current current(flow_.device);  // MPI copies in it
    return RouteTask::advance();
  }

  void abandon() noexcept override {
    if (!ended_ && !task_ && phase_ != Phase::begin) channel_.context().book_failure();
    if (messages_.abandon()) {
      aware_.scratch.strand();
      flow_.strand();
    }
    RouteTask::abandon();
  }

  void nap(std::chrono::nanoseconds longest) override {
    if (task_ || (phase_ != Phase::ready && phase_ != Phase::reduced)) return RouteTask::nap(longest);
    const ShortSleeps precise;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(longest, kEventNap));
  }

 private:
  enum class Phase : std::uint8_t { begin, room, by_the_host, ready, exchange, reduced, results };

  // What follows the phase, if that has ended.
  Progress next() override {
    const bool messages = phase_ == Phase::exchange || phase_ == Phase::results;
    const Progress progress = messages ? messages_.advance() : event_.happened() ? Progress::done : Progress::blocked;
    if (progress != Progress::done) return progress;
    switch (phase_) {
      case Phase::begin:
        prepare();
        break;
      case Phase::room:
        look_for_room();
        break;
      case Phase::ready:
        exchange();
        break;
      case Phase::exchange:
        if (computes(call_.collective)) reduce();
        if (!computes(call_.collective) || call_.collective == Collective::reducescatter) return end();
        wait_for_stream(Phase::reduced);
        break;
      case Phase::reduced:
        exchange_results();
        break;
      case Phase::results:
        return end();
      case Phase::by_the_host:
        return Progress::done;
    }
    return Progress::moved;
  }

  Progress end() {
    const Target last = pieces_.last();
    copy(call_.output, {last.data, last.nbytes});
    flow_.unpack(call_, asked_.fragments);
    flow_.finish(*place_);
    return Progress::done;
  }

  // One rank's GPU alone may be full: where more is needed than before, ranks tell each other whether they have it.
  void prepare() {
    roomy_ = 1;
    packed_ = call_.fragments.empty() ? 0 : call_.count * size_of(call_.dtype);
    try {
      flow_.begin(call_, *place_);
      pieces_.lie_in(aware_.scratch.at_least(std::max(pieces_.common_bytes(), pieces_.own_bytes())));
    } catch (const std::bad_alloc&) {
      roomy_ = 0;
    }
    if (pieces_.common_bytes() > aware_.scratch_granted || packed_ > aware_.packed_granted) {
      Call call = part_of(call_.name + "/room", Collective::allreduce);
      call.op = Op::min;
      call.input = call.output = &roomy_;
      call.count = 1;
      phase_ = Phase::room;
      start(std::move(call));
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

  void wait_for_stream(Phase phase) {
    phase_ = phase;
    event_ = flow_.device.record(flow_.stream);
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
    if (from.nbytes > 0 && to != from.data) flow_.device.copy(to, from.data, from.nbytes, flow_.stream);
  }

  void reduce() {
    std::vector<const void*> sources;
    for (int rank = 0; rank < ranks_; ++rank)
      sources.push_back(rank == me_ ? pieces_.outgoing(rank).data : pieces_.incoming(rank).data);
    if (!is_scan(call_.collective)) return reduce(sources, me_);
    // This rank's comes last: its result may lie where its input does.
    for (int step = 1; step <= ranks_; ++step) {
      const int rank = (me_ + step) % ranks_;
      const int count = combined_for(rank, call_, ranks_);
      if (count > 0) reduce(std::span(sources).first(static_cast<std::size_t>(count)), rank);
    }
  }
  void reduce(std::span<const void* const> sources, int rank) {
    void* const result = pieces_.result_for(rank).data;
    flow_.launcher.reduce(sources, {&result, 1}, {0, pieces_.reduced()}, call_.dtype, call_.op, call_.pre, call_.post,
                          flow_.stream);
  }

  Aware& aware_;
  const int ranks_, me_;
  AwarePieces pieces_;
  DirectMessages messages_;
  Phase phase_ = Phase::begin;
  Event event_;
  std::uint8_t roomy_ = 1;
  std::size_t packed_ = 0;
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

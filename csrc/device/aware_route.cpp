// Implements the route through a GPU-aware MPI. Messages transfer arrays from one GPU's memory to
// another's, on any hosts. MPI only transfers and does not use streams. Our kernels reduce, so that
// results have the same bits as on every other route.
//
//   stream   input ready ─┐                 ┌→ reduce this rank's slice ─┐
//   host                  └ exchange slices ┘                            └ exchange results
#include <algorithm>
#include <new>
#include <utility>

#include "collectives/direct_messages.hpp"
#include "device/aware_pieces.hpp"
#include "device/route_task.hpp"
#include "device/routes.hpp"

namespace ringcomm {
namespace {

struct Aware {
  explicit Aware(Device& device) : flow(device), scratch(device, flow.stream) {}
  Flow flow;
  DeviceRoom scratch;
  // Bytes of scratch and of packed fragments that every rank is known to have allocated; equal on
  // all ranks.
  std::size_t scratch_granted = 0, packed_granted = 0;
};

class AwareTask final : public RouteTask {
 public:
  AwareTask(Channel& channel, Aware& aware, Call call, std::shared_ptr<DeviceLocation> place)
      : RouteTask(channel, aware.flow, std::move(call), std::move(place)), aware_(aware), pieces_(call_, me_, ranks_),
        messages_(channel.context()) {
    begin_with(&AwareTask::prepare);
  }
  ~AwareTask() override { AwareTask::abandon(); }

  Progress advance() override {
    const Device::Current current(flow_.device);  // MPI copies in this context
    return RouteTask::advance();
  }

  void abandon() noexcept override {
    if (exchanges_ && in_progress() && !has_task()) channel_.context().book_failure();
    if (messages_.abandon()) {
      aware_.scratch.leak();
      flow_.leak();
    }
    RouteTask::abandon();
  }

 private:
  // A single rank's GPU may be full. If a call needs more memory than before, ranks agree on
  // whether all of them have it.
  Progress prepare() {
    packed_ = call_.fragments.empty() ? 0 : call_.count * item_;
    try {
      flow_.begin(call_, *place_);
      pieces_.set_scratch(aware_.scratch.at_least(std::max(pieces_.common_bytes(), pieces_.own_bytes())));
    } catch (const std::bad_alloc&) {
      roomy_ = 0;
    }
    if (pieces_.common_bytes() > aware_.scratch_granted || packed_ > aware_.packed_granted)
      return after(least_of(call_.name + "/room", roomy_), &AwareTask::look_for_room);
    if (!roomy_) throw Error(ErrorKind::transport, "this rank's GPU has too little free memory for this call");
    return once_passed(&AwareTask::exchange);
  }

  Progress look_for_room() {
    aware_.scratch_granted = roomy_ ? std::max(aware_.scratch_granted, pieces_.common_bytes()) : 0;
    aware_.packed_granted = roomy_ ? std::max(aware_.packed_granted, packed_) : 0;
    return roomy_ ? once_passed(&AwareTask::exchange) : use_staged_route();
  }

  // Continues with `next` after the work that the stream holds now.
  Progress once_passed(Progress (AwareTask::*next)()) {
    exchanges_ = true;
    return after(flow_.device.record(flow_.stream), next);
  }

  // Calls act(to, from) for all peers in rotated order, so that ranks do not all send to the same
  // rank first.
  template <class Act>
  void each_peer(Act act) {
    messages_.begin();
    for (int step = 1; step < ranks_; ++step) act((me_ + step) % ranks_, (me_ + ranks_ - step) % ranks_);
  }

  Progress exchange() {
    each_peer([&](int to, int from) {
      const ReadArea sent = pieces_.outgoing(to);
      const WriteArea received = pieces_.incoming(from);
      messages_.send(to, sent.data, sent.nbytes);
      messages_.receive(from, received.data, received.nbytes);
    });
    const ReadArea mine = pieces_.outgoing(me_);
    if (!computes(call_.collective)) copy(pieces_.incoming(me_).data, mine.data, mine.nbytes);
    return then(&AwareTask::exchanged);
  }

  Progress exchanged() {
    if (const Progress progress = messages_.advance(); progress != Progress::done) return progress;
    if (!computes(call_.collective)) return give_back();
    reduce_slice();
    return call_.collective == Collective::reducescatter ? give_back() : once_passed(&AwareTask::exchange_results);
  }

  Progress exchange_results() {
    each_peer([&](int to, int from) {
      const WriteArea sent = pieces_.result_for(to), received = pieces_.result_from(from);
      if (pieces_.gets(to)) messages_.send(to, sent.data, sent.nbytes);
      if (pieces_.gets(me_)) messages_.receive(from, received.data, received.nbytes);
    });
    return then(&AwareTask::exchanged_results);
  }

  Progress exchanged_results() {
    const Progress progress = messages_.advance();
    return progress == Progress::done ? give_back() : progress;
  }

  Progress give_back() {
    const WriteArea last = pieces_.last();
    copy(call_.output, last.data, last.nbytes);
    return end();
  }

  void reduce_slice() {
    std::vector<const void*> sources;
    for (int rank = 0; rank < ranks_; ++rank)
      sources.push_back(rank == me_ ? pieces_.outgoing(rank).data : pieces_.incoming(rank).data);
    const auto reduce_for = [&](int rank, int count) {
      void* const result = pieces_.result_for(rank).data;
      reduce(std::span(sources).first(static_cast<std::size_t>(count)), {&result, 1}, {0, pieces_.reduced()});
    };
    if (!is_scan(call_.collective)) return reduce_for(me_, ranks_);
    // This rank's result is last, because it may be stored in this rank's input.
    for (int step = 1; step <= ranks_; ++step) {
      const int rank = (me_ + step) % ranks_;
      reduce_for(rank, combined_for(rank, call_, ranks_));
    }
  }

  Aware& aware_;
  AwarePieces pieces_;
  DirectMessages messages_;
  bool exchanges_ = false;
  std::uint8_t roomy_ = 1;
  std::size_t packed_ = 0;
};

class AwareRoute final : public RouteOf<AwareTask, Aware> {
 public:
  using RouteOf::RouteOf;
  // Calls with a wire format use the route through the host.
  bool takes(const Call& call) const override { return !call.wire && kernels_take(call); }
};

}  // namespace

std::unique_ptr<DeviceRoute> make_aware_route(Device& device) { return std::make_unique<AwareRoute>("aware", device); }

}  // namespace ringcomm

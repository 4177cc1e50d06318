#include "device/one_shot_route.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "device/mapped_peers.hpp"
#include "device/route_task.hpp"

namespace ringcomm {
namespace {

// Bytes of memory for what all ranks give, and at most of one rank. Guessed: no GPU has been timed.
constexpr std::size_t kRoom = 2 << 20, kMost = 256 << 10;

// This rank's memory, of which each rank has a part to write to, twice: calls take turns. Who writes to one is behind
// everybody's being ready in the call before, and that is behind their having read what was in it. Nobody writes to it
// once the last call's result is there.
struct Rooms {
  Rooms(Device& device, int size)
      : flow(device), peers(device, flow.stream),
        each(std::min(kMost, kRoom / static_cast<std::size_t>(size) / kLine * kLine)), memory(device, flow.stream),
        all(static_cast<std::size_t>(size)) {}

  std::size_t nbytes() const { return (2 * all.size() + 1) * each; }
  std::byte* packed() const { return mine + 2 * all.size() * each; }  // fragments of this rank's
  // Where a rank writes to in somebody's memory.
  std::byte* part(std::size_t writer, std::size_t owner, std::size_t me) const {
    std::byte* const begin = owner == me ? mine : peers.at(static_cast<int>(owner), all[owner].input);
    return begin + (calls % 2 * all.size() + writer) * each;
  }

  Flow flow;
  MappedPeers peers;
  const std::size_t each;
  DeviceRoom memory;
  std::byte* mine = nullptr;     // that
  std::vector<Whereabouts> all;  // by rank
  bool told = false;             // them
  std::uint8_t mapped = 1;       // whether all have everybody's
  std::uint64_t calls = 0;
};

class OneShotTask final : public RouteTask {
 public:
  OneShotTask(Channel& channel, Rooms& rooms, Call call, std::shared_ptr<DevicePlace> place)
      : RouteTask(channel, rooms.flow, std::move(call), std::move(place)), rooms_(rooms),
        me_(static_cast<std::size_t>(channel.rank())) {}

 private:
  enum class Phase : std::uint8_t { begin, tell, confirm, meet, another_way };

  Progress next() override {
    switch (phase_) {
      case Phase::begin:
        rooms_.told ? give() : tell();
        break;
      case Phase::tell:
        confirm();
        break;
      case Phase::confirm:
        rooms_.mapped ? give() : go_another_way();
        break;
      case Phase::meet:
        take();
        return Progress::done;
      case Phase::another_way:
        return Progress::done;
    }
    return Progress::moved;
  }
  void start(Phase phase, Call call) {
    phase_ = phase;
    RouteTask::start(std::move(call));
  }

  void tell() {
    try {
      rooms_.mine = rooms_.memory.at_least(rooms_.nbytes());
      mine_ = rooms_.peers.tell(rooms_.mine, rooms_.nbytes(), nullptr, 0);
    } catch (const std::bad_alloc&) {  // not able, then
    }
    Call call = part_of(call_.name + "/rooms", Collective::allgather);
    call.counts.assign(rooms_.all.size(), sizeof mine_);
    call.input = &mine_;
    call.output = rooms_.all.data();
    call.agreed = call_.agreed;
    call.about = &asked_;
    start(Phase::tell, std::move(call));
  }

  void confirm() {
    rooms_.told = true;
    rooms_.peers.heard(mine_);
    const bool able = std::ranges::all_of(rooms_.all, [](const Whereabouts& one) { return one.able != 0; });
    rooms_.mapped = able && rooms_.peers.open(rooms_.all, channel_.rank());
    Call call = part_of(call_.name + "/mapped", Collective::allreduce);
    call.op = Op::min;
    call.input = call.output = &rooms_.mapped;
    call.count = 1;
    start(Phase::confirm, std::move(call));
  }

  void go_another_way() {
    phase_ = Phase::another_way;
    asked_.part = true;
    task_ = make_device_task(channel_, std::move(asked_), place_);
  }

  void give() {
    ++rooms_.calls;
    flow_.begin(call_, *place_, rooms_.packed());
    std::vector<gpu::Tensor> gifts;
    for (std::size_t rank = 0; rank < rooms_.all.size(); ++rank) {
      if (call_.collective != Collective::reduce || static_cast<int>(rank) == call_.root)
        gifts.push_back({call_.input, rooms_.part(me_, rank, me_), given_by(channel_.rank(), call_)});
    }
    flow_.launcher.pack(std::move(gifts), call_.dtype, flow_.stream);
    rooms_.peers.record_ready();
    start(Phase::meet, comparison_of(asked_));
  }

  void take() {
    rooms_.peers.hold_ready();
    if (computes(call_.collective))
      reduce();
    else
      move();
    flow_.unpack(call_, asked_.fragments);
    flow_.finish(*place_);
  }

  void reduce() {
    if (call_.collective == Collective::reduce && channel_.rank() != call_.root) return;
    const bool blocks = call_.collective == Collective::reducescatter;
    const std::size_t before = blocks ? start_of(call_.counts, channel_.rank()) * size_of(call_.dtype) : 0;
    std::vector<const void*> sources;
    for (int rank = 0; rank < combined_for(channel_.rank(), call_, channel_.size()); ++rank)
      sources.push_back(gift_of(static_cast<std::size_t>(rank)) + before);
    const Part all{0, blocks ? call_.counts[me_] : call_.count};
    if (!sources.empty())
      flow_.launcher.reduce(sources, {&call_.output, 1}, all, call_.dtype, call_.op, call_.pre, call_.post,
                            flow_.stream);
  }

  void move() {
    const std::size_t item = size_of(call_.dtype);
    if (call_.collective == Collective::broadcast)
      return copy(call_.output, gift_of(static_cast<std::size_t>(call_.root)), call_.count * item);
    for (std::size_t rank = 0; rank < rooms_.all.size(); ++rank)
      copy(at(call_.output, start_of(call_.counts, static_cast<int>(rank)) * item), gift_of(rank),
           call_.counts[rank] * item);
  }
  const std::byte* gift_of(std::size_t rank) const { return rooms_.part(rank, me_, me_); }
  void copy(void* to, const void* from, std::size_t nbytes) const {
    if (nbytes > 0) flow_.device.copy(to, from, nbytes, flow_.stream);
  }

  Rooms& rooms_;
  const std::size_t me_;
  Phase phase_ = Phase::begin;
  Whereabouts mine_;
};

class OneShotRoute final : public Route {
 public:
  OneShotRoute(Device& device, int size) : Route("ipc, one-shot"), size_(size), rooms_(device, size) {}
  bool takes(const Call& call) const override {
    if (!rooms_.mapped || !kernels_take(call) || call.collective == Collective::alltoall) return false;
    for (int rank = 0; rank < size_; ++rank) {
      if (given_by(rank, call) * size_of(call.dtype) > rooms_.each) return false;
    }
    return true;
  }
  std::unique_ptr<Task> start(Channel& channel, Call call, std::shared_ptr<DevicePlace> place) override {
    return std::make_unique<OneShotTask>(channel, rooms_, std::move(call), std::move(place));
  }

 private:
  const int size_;
  Rooms rooms_;
};

}  // namespace

std::unique_ptr<Route> make_one_shot_route(Device& device, int size) {
  return std::make_unique<OneShotRoute>(device, size);
}

}  // namespace ringcomm

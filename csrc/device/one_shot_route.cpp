#include "device/one_shot_route.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "call/channel.hpp"
#include "device/flow.hpp"
#include "device/mapped_peers.hpp"

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
        each(std::min(kMost, kRoom / static_cast<std::size_t>(size) / kLine * kLine)),
        all(static_cast<std::size_t>(size)) {}
  ~Rooms() {
    if (memory != 0) flow.device.keep(memory, nbytes(), flow.stream);
  }
  Rooms(const Rooms&) = delete;
  Rooms& operator=(const Rooms&) = delete;

  std::size_t nbytes() const { return (2 * all.size() + 1) * each; }
  std::byte* mine() const { return reinterpret_cast<std::byte*>(memory); }
  std::byte* packed() const { return mine() + 2 * all.size() * each; }  // fragments of this rank's
  // Where a rank writes to in somebody's memory.
  std::byte* part(std::size_t writer, std::size_t owner, std::size_t me) const {
    std::byte* const begin = owner == me ? mine() : peers.at(static_cast<int>(owner), all[owner].input);
    return begin + (calls % 2 * all.size() + writer) * each;
  }

  Flow flow;
  MappedPeers peers;
  const std::size_t each;
  CuPointer memory = 0;
  std::vector<Whereabouts> all;  // by rank
  bool told = false;             // them
  std::uint8_t mapped = 1;       // whether all have everybody's
  std::uint64_t calls = 0;
};

class OneShotTask final : public Task {
 public:
  OneShotTask(Channel& channel, Rooms& rooms, Call call, std::shared_ptr<DevicePlace> place)
      : channel_(channel), rooms_(rooms), asked_(call), call_(std::move(call)), place_(std::move(place)),
        me_(static_cast<std::size_t>(channel.rank())) {
    if (call_.op == Op::average) call_.post.divisor *= channel.size();
  }
  ~OneShotTask() override { abandon(); }

  Progress advance() override {
    if (task_) {
      const Progress progress = task_->advance();
      if (progress != Progress::done) return progress;
      task_.reset();
    }
    next();
    return phase_ == Phase::end ? Progress::done : Progress::moved;
  }

  void abandon() noexcept override {
    if (std::exchange(phase_, Phase::end) == Phase::end) return;
    if (task_) task_->abandon();
    task_.reset();
    rooms_.flow.settle();
  }
  void nap(std::chrono::nanoseconds longest) override { task_ ? task_->nap(longest) : Task::nap(longest); }
  std::string_view label() const override { return call_.name.empty() ? name_of(call_.collective) : call_.name; }

 private:
  enum class Phase : std::uint8_t { begin, tell, confirm, meet, another_way, end };

  void next() {
    switch (phase_) {
      case Phase::begin:
        return rooms_.told ? give() : tell();
      case Phase::tell:
        return confirm();
      case Phase::confirm:
        return rooms_.mapped ? give() : go_another_way();
      case Phase::meet:
        take();
        break;
      case Phase::another_way:
      case Phase::end:
        break;
    }
    phase_ = Phase::end;
  }
  void start(Phase phase, Call call) {
    phase_ = phase;
    task_ = channel_.start(std::move(call));
  }

  void tell() {
    try {
      if (rooms_.memory == 0) rooms_.memory = rooms_.flow.device.borrow(rooms_.nbytes());
      mine_ = rooms_.peers.tell(rooms_.mine(), rooms_.nbytes(), nullptr, 0);
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
    Flow& flow = rooms_.flow;
    ++rooms_.calls;
    flow.begin(call_, *place_, rooms_.packed());
    std::vector<gpu::Tensor> gifts;
    for (std::size_t rank = 0; rank < rooms_.all.size(); ++rank) {
      if (call_.collective != Collective::reduce || static_cast<int>(rank) == call_.root)
        gifts.push_back({call_.input, rooms_.part(me_, rank, me_), given(call_, me_)});
    }
    flow.launcher.pack(std::move(gifts), call_.dtype, flow.stream);
    rooms_.peers.record_ready();
    start(Phase::meet, comparison_of(asked_));
  }

  void take() {
    Flow& flow = rooms_.flow;
    rooms_.peers.hold_ready();
    if (computes(call_.collective))
      reduce();
    else
      move();
    flow.unpack(call_, asked_.fragments);
    flow.finish(*place_);
  }

  void reduce() {
    if (call_.collective == Collective::reduce && channel_.rank() != call_.root) return;
    const bool blocks = call_.collective == Collective::reducescatter;
    const std::size_t before = blocks ? start_of(call_.counts, channel_.rank()) * size_of(call_.dtype) : 0;
    const std::size_t ranks = !is_scan(call_.collective)             ? rooms_.all.size()
                              : call_.collective == Collective::scan ? me_ + 1
                                                                     : me_;
    std::vector<const void*> sources;
    for (std::size_t rank = 0; rank < ranks; ++rank) sources.push_back(given_by(rank) + before);
    const Part all{0, blocks ? call_.counts[me_] : call_.count};
    if (!sources.empty())
      rooms_.flow.launcher.reduce(sources, {&call_.output, 1}, all, call_.dtype, call_.op, call_.pre, call_.post,
                                  rooms_.flow.stream);
  }

  void move() {
    const std::size_t item = size_of(call_.dtype);
    if (call_.collective == Collective::broadcast)
      return copy(call_.output, given_by(static_cast<std::size_t>(call_.root)), call_.count * item);
    for (std::size_t rank = 0; rank < rooms_.all.size(); ++rank)
      copy(at(call_.output, start_of(call_.counts, static_cast<int>(rank)) * item), given_by(rank),
           call_.counts[rank] * item);
  }
  const std::byte* given_by(std::size_t rank) const { return rooms_.part(rank, me_, me_); }
  void copy(void* to, const void* from, std::size_t nbytes) const {
    if (nbytes > 0) rooms_.flow.device.copy(to, from, nbytes, rooms_.flow.stream);
  }

 public:
  // Elements that a rank gives.
  static std::size_t given(const Call& call, std::size_t rank) {
    if (call.collective == Collective::broadcast && static_cast<int>(rank) != call.root) return 0;
    if (!has_blocks(call.collective)) return call.count;
    return call.collective == Collective::allgather ? call.counts[rank] : total(call.counts);
  }

 private:
  Channel& channel_;
  Rooms& rooms_;
  Call asked_, call_;  // as it came; with its array in one piece
  const std::shared_ptr<DevicePlace> place_;
  const std::size_t me_;
  Phase phase_ = Phase::begin;
  Whereabouts mine_;
  std::unique_ptr<Task> task_;
};

class OneShotRoute final : public Route {
 public:
  OneShotRoute(Device& device, int size) : Route("ipc, one-shot"), size_(size), rooms_(device, size) {}
  bool takes(const Call& call) const override {
    if (!rooms_.mapped || !kernels_take(call) || call.collective == Collective::alltoall) return false;
    for (int rank = 0; rank < size_; ++rank) {
      if (OneShotTask::given(call, static_cast<std::size_t>(rank)) * size_of(call.dtype) > rooms_.each) return false;
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

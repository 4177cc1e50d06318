// Implements the route for small calls of ranks of one host. Each rank writes its data to all
// ranks' memory, which is mapped once. Each rank then computes the complete result from the data of
// all ranks. So ranks synchronise only once. In the one-shot all-reduce of TensorRT-LLM and vLLM
// ranks wait on the device; here hosts wait, and streams wait for events.
#include <algorithm>
#include <new>
#include <utility>

#include "device/mapped_peers.hpp"
#include "device/route_task.hpp"
#include "device/routes.hpp"

namespace ringcomm {
namespace {

// Bytes of memory for all ranks' data, and limit for one rank. Estimated: no GPU has been timed.
constexpr std::size_t kRoom = 2 << 20, kMost = 256 << 10;

// This rank's memory. It has two parts for each rank to write to, which calls use alternately. No
// write overtakes a read: a write to a part follows the previous call's ready events of all ranks,
// and these follow the reads of that part. No rank writes to this memory after the last call's
// result is ready.
struct Rooms {
  Rooms(Device& device, int size)
      : flow(device), peers(device, flow.stream),
        each(std::min(kMost, kRoom / static_cast<std::size_t>(size) / kLine * kLine)), memory(device, flow.stream),
        all(static_cast<std::size_t>(size)) {}

  std::size_t nbytes() const { return (2 * all.size() + 1) * each; }
  std::byte* packed() const { return mine + 2 * all.size() * each; }  // memory for this rank's packed fragments
  // Returns the address where `writer` writes in `owner`'s memory.
  std::byte* part(int writer, int owner, int me) const {
    std::byte* const begin = owner == me ? mine : peers.at(owner, all[static_cast<std::size_t>(owner)].input);
    return begin + (calls % 2 * all.size() + static_cast<std::size_t>(writer)) * each;
  }

  Flow flow;
  MappedPeers peers;
  const std::size_t each;
  DeviceRoom memory;
  std::byte* mine = nullptr;   // address of `memory`
  std::vector<IpcRecord> all;  // all ranks' records, by rank
  bool exchanged = false;      // true once `all` is exchanged
  std::uint8_t mapped = 1;     // 1 if all ranks have mapped all memory
  std::uint64_t calls = 0;
};

class OneShotTask final : public RouteTask {
 public:
  OneShotTask(Channel& channel, Rooms& rooms, Call call, std::shared_ptr<DeviceLocation> place)
      : RouteTask(channel, rooms.flow, std::move(call), std::move(place)), rooms_(rooms) {
    then(&OneShotTask::begin);
  }

 private:
  Progress begin() { return rooms_.exchanged ? contribute() : exchange_records(); }

  Progress exchange_records() {
    try {
      rooms_.mine = rooms_.memory.at_least(rooms_.nbytes());
      mine_ = rooms_.peers.describe(rooms_.mine, rooms_.nbytes(), nullptr, 0);
    } catch (const std::bad_alloc&) {  // the record's `able` stays 0
    }
    Call records = records_of(call_.name + "/rooms", ranks_, &mine_, sizeof mine_, rooms_.all.data());
    return after(comparing(std::move(records), original_call_), &OneShotTask::map);
  }

  Progress map() {
    rooms_.exchanged = true;
    rooms_.peers.mark_published(mine_);
    const bool able = std::ranges::all_of(rooms_.all, [](const IpcRecord& record) { return record.able != 0; });
    rooms_.mapped = able && rooms_.peers.open(rooms_.all, me_);
    return after(least_of(call_.name + "/mapped", rooms_.mapped), &OneShotTask::confirm);
  }

  Progress confirm() {
    if (rooms_.mapped) return contribute();
    original_call_.is_subcall = true;
    return end_with(make_device_task(channel_, std::move(original_call_), place_));
  }

  Progress contribute() {
    ++rooms_.calls;
    flow_.begin(call_, *place_, rooms_.packed());
    std::vector<gpu::Tensor> contributions;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (call_.collective != Collective::reduce || rank == call_.root)
        contributions.push_back({call_.input, rooms_.part(me_, rank, me_), given_by(me_, call_)});
    }
    flow_.launcher.pack(std::move(contributions), call_.dtype, flow_.stream);
    rooms_.peers.record_ready();
    return after(comparison_of(original_call_), &OneShotTask::take);
  }

  Progress take() {
    rooms_.peers.hold_ready();
    if (computes(call_.collective))
      reduce_contributions();
    else
      move();
    return end();
  }

  void reduce_contributions() {
    if (call_.collective == Collective::reduce && me_ != call_.root) return;
    const bool blocks = call_.collective == Collective::reducescatter;
    const std::size_t before = blocks ? start_of(call_.counts, me_) * item_ : 0;
    std::vector<const void*> sources;
    for (int rank = 0; rank < combined_for(me_, call_, ranks_); ++rank)
      sources.push_back(contribution_of(rank) + before);
    const Part all{0, blocks ? call_.counts[static_cast<std::size_t>(me_)] : call_.count};
    reduce(sources, {&call_.output, 1}, all);
  }

  void move() {
    if (call_.collective == Collective::broadcast)
      return copy(call_.output, contribution_of(call_.root), call_.count * item_);
    for (int rank = 0; rank < ranks_; ++rank)
      copy(at(call_.output, start_of(call_.counts, rank) * item_), contribution_of(rank),
           call_.counts[static_cast<std::size_t>(rank)] * item_);
  }
  const std::byte* contribution_of(int rank) const { return rooms_.part(rank, me_, me_); }

  Rooms& rooms_;
  IpcRecord mine_;
};

class OneShotRoute final : public RouteOf<OneShotTask, Rooms> {
 public:
  using RouteOf::RouteOf;
  bool takes(const Call& call) const override {
    if (!kept_.mapped || !kernels_take(call) || call.collective == Collective::alltoall) return false;
    for (int rank = 0; rank < static_cast<int>(kept_.all.size()); ++rank) {
      if (given_by(rank, call) * size_of(call.dtype) > kept_.each) return false;
    }
    return true;
  }
};

}  // namespace

std::unique_ptr<DeviceRoute> make_one_shot_route(Device& device, int size) {
  return std::make_unique<OneShotRoute>("ipc, one-shot", device, size);
}

}  // namespace ringcomm

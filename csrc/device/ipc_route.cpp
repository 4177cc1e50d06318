// Implements the route of ranks of one host that map each other's device memory. Each rank works on
// its share of the array; its kernels read and write all ranks' memory. Ranks synchronise on the
// host. No kernel waits for another process's kernel, which may not run before this one ends.
//
//   stream  ready ─┐                      wait for all ready, work, done ─┐      wait for all done
//   host           └ all-gather addresses ┘                               └ barrier ┘
#include <cstring>
#include <new>
#include <utility>

#include "device/mapped_peers.hpp"
#include "device/route_task.hpp"
#include "device/routes.hpp"

namespace ringcomm {
namespace {

struct Ipc {
  explicit Ipc(Device& device) : flow(device), peers(device, flow.stream) {}
  Flow flow;
  MappedPeers peers;
  bool refused = false;  // a rank could not open memory; its owner does not publish it again
};

class IpcTask final : public RouteTask {
 public:
  IpcTask(Channel& channel, Ipc& ipc, Call call, std::shared_ptr<DeviceLocation> place)
      : RouteTask(channel, ipc.flow, std::move(call), std::move(place)), ipc_(ipc) {
    then(&IpcTask::exchange_records);
  }

 private:
  // Result of opening fresh memory; ranks agree on the minimum.
  static constexpr std::uint8_t kRefused = 0, kUnable = 1, kAble = 2;

  Progress exchange_records() {
    bool ready = true;
    try {
      flow_.begin(call_, *place_);
      ipc_.peers.record_ready();
    } catch (const std::bad_alloc&) {  // no memory to pack into
      ready = false;
    }
    mine_.assign(record_bytes(), std::byte{0});
    IpcRecord here = ipc_.peers.describe(call_.input, in_bytes(), call_.output, out_bytes());
    if (!ready || overwrites_shared_input()) here.able = 0;
    std::memcpy(mine_.data(), &here, sizeof here);
    for (int rank = 0; call_.collective == Collective::alltoall && rank < ranks_; ++rank) {
      const std::uint64_t start = start_of(call_.counts, rank);
      std::memcpy(mine_.data() + start_at(rank), &start, sizeof start);
    }
    all_.resize(static_cast<std::size_t>(ranks_) * mine_.size());
    Call records = records_of(call_.name + "/where", ranks_, mine_.data(), mine_.size(), all_.data());
    return after(comparing(std::move(records), original_call_), &IpcTask::look);
  }

  // Returns true if the call in place would overwrite input that other ranks still read.
  bool overwrites_shared_input() const {
    const bool writes_own_block =
        call_.collective == Collective::reducescatter || call_.collective == Collective::allgather;
    const bool needs_separate_output = is_scan(call_.collective) || call_.collective == Collective::alltoall ||
                                       (writes_own_block && start_of(call_.counts, me_) > 0);
    return needs_separate_output && call_.input == call_.output;
  }

  Progress look() {
    others_.resize(static_cast<std::size_t>(ranks_));
    bool able = true, fresh = false;
    for (int rank = 0; rank < ranks_; ++rank) {
      IpcRecord& other = ipc_record_of(rank);
      std::memcpy(&other, record_of(rank), sizeof other);
      able &= other.able != 0;
      fresh |= other.fresh != 0;
    }
    // Fresh memory is opened in any case, because its rank does not publish it again.
    ipc_.peers.mark_published(ipc_record_of(me_));
    if (!fresh) return able ? work() : use_staged_route();
    const bool opened = ipc_.peers.open(others_, me_);
    agreed_ = !opened ? kRefused : able ? kAble : kUnable;
    return after(least_of(call_.name + "/opened", agreed_), &IpcTask::confirm);
  }

  Progress confirm() {
    ipc_.refused |= agreed_ == kRefused;
    return agreed_ == kAble ? work() : use_staged_route();
  }

  Progress work() {
    ipc_.peers.hold_ready();
    if (computes(call_.collective))
      reduce_share();
    else
      move();
    ipc_.peers.record_done();
    return after(part_of(call_.name + "/done", Collective::barrier), &IpcTask::leave);
  }

  Progress leave() {
    ipc_.peers.hold_done();
    return end();
  }

  IpcRecord& ipc_record_of(int rank) { return others_[static_cast<std::size_t>(rank)]; }
  const std::byte* input_of(int rank) {
    return rank == me_ ? static_cast<const std::byte*>(call_.input) : ipc_.peers.at(rank, ipc_record_of(rank).input);
  }
  std::byte* output_of(int rank) {
    return rank == me_ ? static_cast<std::byte*>(call_.output) : ipc_.peers.at(rank, ipc_record_of(rank).output);
  }

  // Reduces this rank's share: a slice, its block, or all elements.
  void reduce_share() {
    std::vector<const void*> sources;
    for (int rank = 0; rank < combined_for(me_, call_, ranks_); ++rank) sources.push_back(input_of(rank));
    Part share = slice_of(call_.count, item_, ranks_, me_);
    std::vector<void*> destinations;
    if (call_.collective == Collective::allreduce) {
      for (int rank = 0; rank < ranks_; ++rank) destinations.push_back(output_of(rank));
    } else if (call_.collective == Collective::reduce) {
      destinations.push_back(output_of(call_.root));
    } else {
      destinations.push_back(call_.output);
      share = {0, call_.count};
    }
    if (call_.collective == Collective::reducescatter) {
      share.count = call_.counts[static_cast<std::size_t>(me_)];
      for (const void*& source : sources) source = at(source, start_of(call_.counts, me_) * item_);
    }
    reduce(sources, destinations, share);
  }
  void move() {
    if (call_.collective == Collective::broadcast) return copy(call_.output, input_of(call_.root), call_.count * item_);
    const bool gathers = call_.collective == Collective::allgather;
    const std::vector<std::size_t>& counts = gathers ? call_.counts : call_.receive_counts;
    for (int rank = 0; rank < ranks_; ++rank) {
      std::uint64_t start = 0;
      if (!gathers) std::memcpy(&start, record_of(rank) + start_at(me_), sizeof start);
      copy(at(call_.output, start_of(counts, rank) * item_), input_of(rank) + start * item_,
           counts[static_cast<std::size_t>(rank)] * item_);
    }
  }

  // A record consists of an IpcRecord and, for alltoall, the start of each rank's block.
  static std::size_t start_at(int rank) {
    return sizeof(IpcRecord) + static_cast<std::size_t>(rank) * sizeof(std::uint64_t);
  }
  std::size_t record_bytes() const { return start_at(call_.collective == Collective::alltoall ? ranks_ : 0); }
  const std::byte* record_of(int rank) const { return all_.data() + static_cast<std::size_t>(rank) * mine_.size(); }

  std::size_t in_bytes() const { return given_by(me_, call_) * item_; }
  // Bytes of the output that other ranks write.
  std::size_t out_bytes() const {
    const bool all_ranks = call_.collective == Collective::allreduce;
    const bool mine = call_.collective == Collective::reduce && me_ == call_.root;
    return all_ranks || mine ? call_.count * item_ : 0;
  }

  Ipc& ipc_;
  std::vector<std::byte> mine_, all_;  // records
  std::vector<IpcRecord> others_;
  std::uint8_t agreed_ = kRefused;
};

class IpcRoute final : public RouteOf<IpcTask, Ipc> {
 public:
  IpcRoute(Device& device, std::size_t least) : RouteOf("ipc", device), least_(least) {}
  bool takes(const Call& call) const override {
    if (kept_.refused || !kernels_take(call)) return false;
    if (call.collective == Collective::alltoall) return true;  // ranks' counts differ, so no limit applies
    return (has_blocks(call.collective) ? total(call.counts) : call.count) * size_of(call.dtype) >= least_;
  }

 private:
  const std::size_t least_;
};

}  // namespace

std::unique_ptr<DeviceRoute> make_ipc_route(Device& device, std::size_t least) {
  return std::make_unique<IpcRoute>(device, least);
}

}  // namespace ringcomm

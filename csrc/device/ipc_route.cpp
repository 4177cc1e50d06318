#include "device/ipc_route.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "device/copies.hpp"
#include "device/mapped_peers.hpp"
#include "device/route_task.hpp"
#include "device/staged_task.hpp"

namespace ringcomm {
namespace {

struct Ipc {
  explicit Ipc(Device& device) : flow(device), peers(device, flow.stream) {}
  Flow flow;
  MappedPeers peers;
  bool refused = false;  // a rank could not open what others have told of, and will not be told again
};

class IpcTask final : public RouteTask {
 public:
  IpcTask(Channel& channel, Ipc& ipc, Call call, std::shared_ptr<DevicePlace> place)
      : RouteTask(channel, ipc.flow, std::move(call), std::move(place)), ipc_(ipc),
        ranks_(static_cast<std::size_t>(channel.size())), me_(static_cast<std::size_t>(channel.rank())) {}

 private:
  enum class Phase : std::uint8_t { begin, tell, confirm, meet, by_the_host };
  // What has become of what was fresh, on the rank where it was worst.
  static constexpr std::uint8_t kRefused = 0, kUnable = 1, kAble = 2;

  Progress next() override {
    switch (phase_) {
      case Phase::begin:
        tell();
        break;
      case Phase::tell:
        look();
        break;
      case Phase::confirm:
        ipc_.refused |= agreed_ == kRefused;
        agreed_ == kAble ? work() : go_by_the_host();
        break;
      case Phase::meet:
        ipc_.peers.hold_done();
        flow_.unpack(call_, asked_.fragments);
        flow_.finish(*place_);
        return Progress::done;
      case Phase::by_the_host:
        return Progress::done;
    }
    return Progress::moved;
  }
  void start(Phase phase, Call call) {
    phase_ = phase;
    RouteTask::start(std::move(call));
  }

  void tell() {
    bool ready = true;
    try {
      flow_.begin(call_, *place_);
      ipc_.peers.record_ready();
    } catch (const std::bad_alloc&) {  // to pack into
      ready = false;
    }
    mine_.assign(record_bytes(), std::byte{0});
    Whereabouts here = ipc_.peers.tell(call_.input, in_bytes(), call_.output, out_bytes());
    if (!ready || in_its_own_way()) here.able = 0;
    std::memcpy(mine_.data(), &here, sizeof here);
    for (std::size_t rank = 0; call_.collective == Collective::alltoall && rank < ranks_; ++rank) {
      const std::uint64_t start = start_of(call_.counts, static_cast<int>(rank));
      std::memcpy(mine_.data() + sizeof here + rank * sizeof start, &start, sizeof start);
    }
    all_.resize(ranks_ * mine_.size());
    Call call = part_of(call_.name + "/where", Collective::allgather);
    call.counts.assign(ranks_, mine_.size());
    call.input = mine_.data();
    call.output = all_.data();
    call.agreed = call_.agreed;
    call.about = &asked_;
    start(Phase::tell, std::move(call));
  }

  // Some would overwrite what others still read.
  bool in_its_own_way() const {
    const bool own_place = call_.collective == Collective::reducescatter || call_.collective == Collective::allgather;
    const bool apart = is_scan(call_.collective) || call_.collective == Collective::alltoall ||
                       (own_place && start_of(call_.counts, channel_.rank()) > 0);
    return apart && call_.input == call_.output;
  }

  void look() {
    others_.resize(ranks_);
    bool able = true, fresh = false;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::memcpy(&others_[rank], all_.data() + rank * mine_.size(), sizeof(Whereabouts));
      able &= others_[rank].able != 0;
      fresh |= others_[rank].fresh != 0;
    }
    // What is fresh is opened even so: its rank does not say it again.
    ipc_.peers.heard(others_[me_]);
    if (!fresh) return able ? work() : go_by_the_host();
    const bool opened = ipc_.peers.open(others_, channel_.rank());
    agreed_ = !opened ? kRefused : able ? kAble : kUnable;
    Call call = part_of(call_.name + "/opened", Collective::allreduce);
    call.op = Op::min;
    call.input = call.output = &agreed_;
    call.count = 1;
    start(Phase::confirm, std::move(call));
  }

  void work() {
    const CuStream stream = flow_.stream;
    ipc_.peers.hold_ready();
    if (computes(call_.collective))
      reduce(stream);
    else
      move(stream);
    ipc_.peers.record_done();
    start(Phase::meet, part_of(call_.name + "/done", Collective::barrier));
  }

  void go_by_the_host() {
    asked_.agreed = asked_.part = true;
    phase_ = Phase::by_the_host;
    task_ = make_staged(channel_, std::move(asked_), device_copies(place_), false);
  }

  const std::byte* input_of(std::size_t rank) const {
    if (rank == me_) return static_cast<const std::byte*>(call_.input);
    return ipc_.peers.at(static_cast<int>(rank), others_[rank].input);
  }
  std::byte* output_of(std::size_t rank) const {
    if (rank == me_) return static_cast<std::byte*>(call_.output);
    return ipc_.peers.at(static_cast<int>(rank), others_[rank].output);
  }

  // This rank's share: a slice, its own block, or all of it.
  void reduce(CuStream stream) {
    const std::size_t item = size_of(call_.dtype);
    std::vector<const void*> sources;
    const int combined = combined_for(channel_.rank(), call_, channel_.size());
    for (int rank = 0; rank < combined; ++rank) sources.push_back(input_of(static_cast<std::size_t>(rank)));
    Part share = slice_of(call_.count, item, channel_.size(), channel_.rank());
    std::vector<void*> destinations;
    if (call_.collective == Collective::allreduce) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) destinations.push_back(output_of(rank));
    } else if (call_.collective == Collective::reduce) {
      destinations.push_back(output_of(static_cast<std::size_t>(call_.root)));
    } else {
      destinations.push_back(call_.output);
      share = {0, call_.count};
    }
    if (call_.collective == Collective::reducescatter) {
      share.count = call_.counts[me_];
      for (const void*& source : sources) source = at(source, start_of(call_.counts, channel_.rank()) * item);
    }
    if (!sources.empty())
      flow_.launcher.reduce(sources, destinations, share, call_.dtype, call_.op, call_.pre, call_.post, stream);
  }
  void move(CuStream stream) {
    const std::size_t item = size_of(call_.dtype);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const int from = static_cast<int>(rank);
      if (call_.collective == Collective::broadcast && from == call_.root)
        copy(call_.output, input_of(rank), call_.count * item, stream);
      if (call_.collective == Collective::allgather)
        copy(at(call_.output, start_of(call_.counts, from) * item), input_of(rank), call_.counts[rank] * item, stream);
      if (call_.collective == Collective::alltoall) {
        std::uint64_t start = 0;
        std::memcpy(&start, all_.data() + rank * mine_.size() + sizeof(Whereabouts) + me_ * sizeof start, sizeof start);
        const std::size_t count = call_.receive_counts[rank];
        if (count > 0)
          copy(at(call_.output, start_of(call_.receive_counts, from) * item), input_of(rank) + start * item,
               count * item, stream);
      }
    }
  }
  void copy(void* to, const void* from, std::size_t nbytes, CuStream stream) const {
    if (nbytes > 0 && to != from) flow_.device.copy(to, from, nbytes, stream);
  }

  std::size_t record_bytes() const {
    return sizeof(Whereabouts) + (call_.collective == Collective::alltoall ? ranks_ * sizeof(std::uint64_t) : 0);
  }
  std::size_t in_bytes() const { return given_by(channel_.rank(), call_) * size_of(call_.dtype); }
  // What others write to.
  std::size_t out_bytes() const {
    const bool everybody = call_.collective == Collective::allreduce;
    const bool mine = call_.collective == Collective::reduce && channel_.rank() == call_.root;
    return everybody || mine ? call_.count * size_of(call_.dtype) : 0;
  }

  Ipc& ipc_;
  const std::size_t ranks_, me_;
  Phase phase_ = Phase::begin;
  std::vector<std::byte> mine_, all_;  // an Whereabouts, and where blocks for each rank begin
  std::vector<Whereabouts> others_;
  std::uint8_t agreed_ = kRefused;
};

class IpcRoute final : public Route {
 public:
  explicit IpcRoute(Device& device) : Route("ipc"), ipc_(device) {}
  bool takes(const Call& call) const override { return !ipc_.refused && kernels_take(call); }
  std::unique_ptr<Task> start(Channel& channel, Call call, std::shared_ptr<DevicePlace> place) override {
    return std::make_unique<IpcTask>(channel, ipc_, std::move(call), std::move(place));
  }

 private:
  Ipc ipc_;
};

}  // namespace

std::unique_ptr<Route> make_ipc_route(Device& device) { return std::make_unique<IpcRoute>(device); }

}  // namespace ringcomm

#include "device/nccl_route.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "device/nccl_comm.hpp"
#include "device/route_task.hpp"

namespace ringcomm {
namespace {

constexpr int kSum = 0;      // ncclRedOp_t
constexpr int kNoType = -1;  // for reductions
constexpr int kByte = 1;     // ncclUint8

// ncclDataType_t, and how many of it an element is.
std::pair<int, std::size_t> type_of(DType dtype) {
  switch (dtype) {
    case DType::int8:
      return {0, 1};
    case DType::uint8:
      return {1, 1};
    case DType::int32:
      return {2, 1};
    case DType::uint32:
      return {3, 1};
    case DType::int64:
      return {4, 1};
    case DType::uint64:
      return {5, 1};
    case DType::float16:
      return {6, 1};
    case DType::float32:
      return {7, 1};
    case DType::float64:
      return {8, 1};
    case DType::bfloat16:
      return {9, 1};
    case DType::complex64:
      return {7, 2};
    case DType::complex128:
      return {8, 2};
    default:
      return {kNoType, 1};
  }
}

struct Linked {
  Linked(const Nccl& functions, Device& device) : nccl(functions), flow(device), inputs(device, flow.stream) {}
  const Nccl& nccl;
  Flow flow;
  DeviceRoom inputs;  // of calls in place
  std::unique_ptr<NcclComm> comm;
};

class NcclTask final : public RouteTask {
 public:
  NcclTask(Channel& channel, Linked& linked, Call call, std::shared_ptr<DevicePlace> place)
      : RouteTask(channel, linked.flow, std::move(call), std::move(place)), linked_(linked) {
    if (!asked_.agreed) start(comparison_of(asked_));
  }

 private:
  Progress next() override {
    if (std::exchange(introducing_, false)) {
      linked_.comm = std::make_unique<NcclComm>(linked_.nccl, flow_.device, id_, channel_.size(), channel_.rank());
    }
    if (!linked_.comm) {
      introduce();
      return Progress::moved;
    }
    if (!linked_.comm->made()) return Progress::blocked;
    work();
    return Progress::done;
  }

  // Rank 0 says which communicator it is to be.
  void introduce() {
    if (channel_.rank() == 0) linked_.nccl.check(linked_.nccl.unique_id(&id_), "make a communicator");
    Call call = part_of(call_.name + "/nccl", Collective::broadcast);
    call.input = call.output = &id_;
    call.count = sizeof id_;
    start(std::move(call));
    introducing_ = true;
  }

  void work() {
    flow_.begin(call_, *place_);
    {
      const Device::Current current(flow_.device);
      if (computes(call_.collective))
        reduce();
      else
        move();
    }
    if (!call_.post.identity() && results() > 0)
      flow_.launcher.scale(call_.output, results(), call_.dtype, call_.post, flow_.stream);
    flow_.unpack(call_, asked_.fragments);
    flow_.finish(*place_);
  }
  // Of a reduction, on this rank.
  std::size_t results() const {
    if (call_.collective == Collective::reducescatter) return call_.counts[static_cast<std::size_t>(channel_.rank())];
    return call_.collective == Collective::allreduce || channel_.rank() == call_.root ? call_.count : 0;
  }

  void reduce() {
    const auto [type, parts] = type_of(call_.dtype);
    const NcclHandle comm = linked_.comm->handle();
    const std::size_t count = call_.count * parts;
    const CuStream stream = flow_.stream;
    const Nccl& nccl = linked_.nccl;
    if (call_.collective == Collective::reducescatter) return reduce_blocks(type, parts);
    nccl.check(call_.collective == Collective::allreduce
                   ? nccl.allreduce(call_.input, call_.output, count, type, kSum, comm, stream)
                   : nccl.reduce(call_.input, call_.output, count, type, kSum, call_.root, comm, stream),
               "reduce");
  }

  // NCCL's own call knows blocks of one size only.
  void reduce_blocks(int type, std::size_t parts) {
    const Nccl& nccl = linked_.nccl;
    const NcclHandle comm = linked_.comm->handle();
    const CuStream stream = flow_.stream;
    const std::vector<std::size_t>& counts = call_.counts;
    if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end())
      return nccl.check(nccl.reducescatter(call_.input, call_.output, counts[0] * parts, type, kSum, comm, stream),
                        "reduce");
    nccl.check(nccl.group_start(), "begin a group");
    for (int rank = 0; rank < channel_.size(); ++rank) {
      const std::size_t count = counts[static_cast<std::size_t>(rank)] * parts;
      const std::byte* const from = at(call_.input, start_of(counts, rank) * size_of(call_.dtype));
      if (count > 0) nccl.check(nccl.reduce(from, call_.output, count, type, kSum, rank, comm, stream), "reduce");
    }
    nccl.check(nccl.group_end(), "end a group");
  }

  void move() {
    const std::size_t item = size_of(call_.dtype);
    const Nccl& nccl = linked_.nccl;
    const NcclHandle comm = linked_.comm->handle();
    const CuStream stream = flow_.stream;
    if (call_.collective == Collective::broadcast)
      return nccl.check(nccl.broadcast(call_.input, call_.output, call_.count * item, kByte, call_.root, comm, stream),
                        "broadcast");
    const bool gathers = call_.collective == Collective::allgather;
    const std::vector<std::size_t>& receive = gathers ? call_.counts : call_.receive_counts;
    const void* input = call_.input;
    if (input == call_.output) {  // NCCL sends and receives in any order: what comes must not lie on what is to be sent
      const std::size_t own = gathers ? call_.counts[static_cast<std::size_t>(channel_.rank())] : total(call_.counts);
      std::byte* const kept = linked_.inputs.at_least(own * item);
      if (own > 0) flow_.device.copy(kept, input, own * item, stream);
      input = kept;
    }
    nccl.check(nccl.group_start(), "begin a group");
    for (int rank = 0; rank < channel_.size(); ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      const std::size_t sent = call_.counts[gathers ? static_cast<std::size_t>(channel_.rank()) : index] * item;
      const std::byte* const from = at(input, gathers ? 0 : start_of(call_.counts, rank) * item);
      if (sent > 0) nccl.check(nccl.send(from, sent, kByte, rank, comm, stream), "send");
      std::byte* const to = at(call_.output, start_of(receive, rank) * item);
      if (receive[index] > 0) nccl.check(nccl.receive(to, receive[index] * item, kByte, rank, comm, stream), "receive");
    }
    nccl.check(nccl.group_end(), "end a group");
  }

  Linked& linked_;
  NcclId id_{};
  bool introducing_ = false;
};

class NcclRoute final : public Route {
 public:
  NcclRoute(const Nccl& nccl, Device& device) : Route("nccl"), linked_(nccl, device) {}
  // Sums, for of minima and maxima NCCL gives other bits than we where there are NaNs.
  bool takes(const Call& call) const override {
    if (call.feedback || !rounds(call.wire) || !call.algorithm.empty()) return false;
    switch (call.collective) {
      case Collective::allreduce:
      case Collective::reducescatter:
      case Collective::reduce: {
        const bool scaled = !call.post.identity() || call.op == Op::average;
        return (call.op == Op::sum || call.op == Op::average) && type_of(call.dtype).first != kNoType &&
               call.pre.identity() && (!scaled || info(call.dtype).floating);
      }
      case Collective::broadcast:
      case Collective::allgather:
      case Collective::alltoall:
        return true;
      default:
        return false;
    }
  }
  std::unique_ptr<Task> start(Channel& channel, Call call, std::shared_ptr<DevicePlace> place) override {
    return std::make_unique<NcclTask>(channel, linked_, std::move(call), std::move(place));
  }

 private:
  Linked linked_;
};

}  // namespace

std::int32_t nccl_version() {
  int version = 0;
  const Nccl* const nccl = Nccl::load(Device::nccl_library());
  return nccl && nccl->version(&version) == 0 ? version : 0;
}

std::unique_ptr<Route> make_nccl_route(Device& device) {
  return std::make_unique<NcclRoute>(*Nccl::load(Device::nccl_library()), device);
}

}  // namespace ringcomm

// Implements the route through NCCL, for ranks with separate GPUs. NCCL is loaded when it is first
// needed.
#include <algorithm>
#include <functional>
#include <utility>

#include "device/nccl_comm.hpp"
#include "device/route_task.hpp"
#include "device/routes.hpp"

namespace ringcomm {
namespace {

constexpr int kSum = 0;   // ncclRedOp_t
constexpr int kByte = 1;  // ncclUint8

// NCCL's type for a dtype (ncclDataType_t), and how many of these form one element.
struct Type {
  DType dtype;
  int number;
  std::size_t parts = 1;
};
constexpr Type kTypes[] = {
    {DType::int8, 0},    {DType::uint8, 1},    {DType::int32, 2},        {DType::uint32, 3},
    {DType::int64, 4},   {DType::uint64, 5},   {DType::float16, 6},      {DType::float32, 7},
    {DType::float64, 8}, {DType::bfloat16, 9}, {DType::complex64, 7, 2}, {DType::complex128, 8, 2},
};
const Type* type_of(DType dtype) {  // null: not supported in reductions
  const Type* const found = std::ranges::find(kTypes, dtype, &Type::dtype);
  return found == std::end(kTypes) ? nullptr : found;
}

struct Linked {
  Linked(const Nccl& functions, Device& device) : nccl(functions), flow(device), inputs(device, flow.stream) {}
  const Nccl& nccl;
  Flow flow;
  DeviceRoom inputs;  // copies of the inputs of in-place calls
  std::unique_ptr<NcclComm> comm;
};

class NcclTask final : public RouteTask {
 public:
  NcclTask(Channel& channel, Linked& linked, Call call, std::shared_ptr<DeviceLocation> place)
      : RouteTask(channel, linked.flow, std::move(call), std::move(place)), linked_(linked) {
    begin_with(&NcclTask::introduce);
  }

 private:
  // Broadcasts rank 0's id of the communicator.
  Progress introduce() {
    if (linked_.comm) return work();
    if (me_ == 0) linked_.nccl.check(linked_.nccl.unique_id(&id_), "create a communicator id");
    Call call = part_of(call_.name + "/nccl", Collective::broadcast);
    call.input = call.output = &id_;
    call.count = sizeof id_;
    return after(std::move(call), &NcclTask::link);
  }

  Progress link() {
    linked_.comm = std::make_unique<NcclComm>(linked_.nccl, flow_.device, id_, ranks_, me_);
    return then(&NcclTask::work);
  }

  Progress work() {
    if (!linked_.comm->made()) return Progress::blocked;
    flow_.begin(call_, *place_);
    {
      const Device::Current current(flow_.device);
      if (computes(call_.collective))
        reduce_all();
      else
        move();
    }
    if (!call_.post.identity() && results() > 0)
      flow_.launcher.scale(call_.output, results(), call_.dtype, call_.post, flow_.stream);
    return end();
  }
  // Returns the number of elements of a reduction's result on this rank.
  std::size_t results() const {
    if (call_.collective == Collective::reducescatter) return mine(call_.counts);
    return call_.collective == Collective::allreduce || me_ == call_.root ? call_.count : 0;
  }

  // Runs an NCCL function on the communicator and the stream.
  void run(const char* what, auto function, auto... arguments) const {
    linked_.nccl.check(function(arguments..., linked_.comm->handle(), flow_.stream), what);
  }
  // Runs act(rank) for all ranks in one NCCL group.
  void in_a_group(auto act) const {
    linked_.nccl.check(linked_.nccl.group_start(), "start a group");
    for (int rank = 0; rank < ranks_; ++rank) act(rank);
    linked_.nccl.check(linked_.nccl.group_end(), "end a group");
  }
  std::size_t mine(const std::vector<std::size_t>& counts) const { return counts[static_cast<std::size_t>(me_)]; }

  void reduce_all() {
    const auto& [dtype, type, parts] = *type_of(call_.dtype);
    const Nccl& nccl = linked_.nccl;
    const std::size_t count = call_.count * parts;
    if (call_.collective == Collective::reducescatter) return reduce_blocks(type, parts);
    if (call_.collective == Collective::allreduce)
      return run("reduce", nccl.allreduce, call_.input, call_.output, count, type, kSum);
    run("reduce", nccl.reduce, call_.input, call_.output, count, type, kSum, call_.root);
  }

  // NCCL's reduce-scatter requires blocks of equal size.
  void reduce_blocks(int type, std::size_t parts) {
    const Nccl& nccl = linked_.nccl;
    const std::vector<std::size_t>& counts = call_.counts;
    if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end())
      return run("reduce", nccl.reducescatter, call_.input, call_.output, counts[0] * parts, type, kSum);
    in_a_group([&](int rank) {
      const std::size_t count = counts[static_cast<std::size_t>(rank)] * parts;
      const std::byte* const from = at(call_.input, start_of(counts, rank) * item_);
      if (count > 0) run("reduce", nccl.reduce, from, call_.output, count, type, kSum, rank);
    });
  }

  void move() {
    const Nccl& nccl = linked_.nccl;
    if (call_.collective == Collective::broadcast)
      return run("broadcast", nccl.broadcast, call_.input, call_.output, call_.count * item_, kByte, call_.root);
    const bool gathers = call_.collective == Collective::allgather;
    const std::vector<std::size_t>& receive = gathers ? call_.counts : call_.receive_counts;
    const void* input = call_.input;
    if (input == call_.output) {  // NCCL's order of sends and receives is undefined: do not receive into unsent data
      const std::size_t own = (gathers ? mine(call_.counts) : total(call_.counts)) * item_;
      std::byte* const kept = linked_.inputs.at_least(own);
      copy(kept, input, own);
      input = kept;
    }
    in_a_group([&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      const std::size_t sent = (gathers ? mine(call_.counts) : call_.counts[index]) * item_;
      const std::byte* const from = at(input, gathers ? 0 : start_of(call_.counts, rank) * item_);
      if (sent > 0) run("send", nccl.send, from, sent, kByte, rank);
      std::byte* const to = at(call_.output, start_of(receive, rank) * item_);
      if (receive[index] > 0) run("receive", nccl.receive, to, receive[index] * item_, kByte, rank);
    });
  }

  Linked& linked_;
  NcclId id_{};
};

class NcclRoute final : public RouteOf<NcclTask, Linked> {
 public:
  using RouteOf::RouteOf;
  // Supports only sums. NCCL's minima and maxima have different bits than ours for NaNs.
  bool takes(const Call& call) const override {
    if (call.feedback || !rounds(call.wire) || !call.algorithm.empty()) return false;
    switch (call.collective) {
      case Collective::allreduce:
      case Collective::reducescatter:
      case Collective::reduce: {
        const bool scaled = !call.post.identity() || call.op == Op::average;
        return (call.op == Op::sum || call.op == Op::average) && type_of(call.dtype) && call.pre.identity() &&
               (!scaled || info(call.dtype).floating);
      }
      case Collective::broadcast:
      case Collective::allgather:
      case Collective::alltoall:
        return true;
      default:
        return false;
    }
  }
};

}  // namespace

std::int32_t nccl_version() {
  int version = 0;
  const Nccl* const nccl = Nccl::load(Device::nccl_library());
  return nccl && nccl->version(&version) == 0 ? version : 0;
}

std::unique_ptr<DeviceRoute> make_nccl_route(Device& device) {
  return std::make_unique<NcclRoute>("nccl", *Nccl::load(Device::nccl_library()), device);
}

}  // namespace ringcomm

// Implements Channel: validates calls, creates their tasks, and handles departures and failures.
#include "collectives/channel.hpp"

#include "collectives/adasum.hpp"
#include "collectives/call_task.hpp"
#include "collectives/gathered_any.hpp"
#include "collectives/gathered_per_rank.hpp"

namespace ringcomm {
namespace {

std::unique_ptr<ConsistencyCheck> make_check(CallContext& context, const std::optional<InlineLimits>& most) {
  if (context.on_one_host()) return make_memory_consistency_check(context);
  return most ? make_message_consistency_check(context, *most) : nullptr;
}

// Throws for an op that the dtype does not support. The error is identical on all ranks.
void check_arithmetic(const Call& call) {
  const bool scaled = !call.pre.identity() || !call.post.identity();
  if (kernels::reduces(call.dtype, call.op) && (is_scaled(call.op) || !scaled)) return;
  throw invalid(name_of(call.collective), ": op ", name_of(call.op), " does not support ",
                kernels::reduces(call.dtype, call.op) ? "scale factors" : concat("dtype ", info(call.dtype).name));
}

// Throws for a wire format that the call does not support. The error is identical on all ranks.
void check_encoding(const Call& call) {
  check_wire(call.wire);
  const bool sums = call.collective == Collective::allreduce && (call.op == Op::sum || call.op == Op::average);
  if (!rounds(call.wire) && !sums) {
    throw invalid(name_of(call.collective), ": wire format ", name_of(call.wire),
                  " supports only sums and averages of allreduce; this call has op ", name_of(call.op));
  }
  if (call.feedback && call.feedback->count(call.tensor) != call.count) {
    throw invalid(name_of(call.collective), ": the error feedback has ", call.feedback->count(call.tensor),
                  " elements, but the array has ", call.count);
  }
}

}  // namespace

Channel::Channel(std::shared_ptr<Transport> transport, std::vector<int> peers, int me, TagStream tags,
                 std::shared_ptr<Node> node, int slot, ChannelConfig config)
    : context_(std::move(transport), std::move(peers), me, tags, std::move(node), slot, std::move(config)),
      resolver_(context_), check_(make_check(context_, resolver_.inline_limits())) {}

bool Channel::sends(const Call& call) {
  const Route route = choose(call).route;
  return route == Route::schedule || route == Route::two_levels;
}

std::unique_ptr<Task> Channel::start(Call&& call) {
  if (!prepare(call)) return start_composed(std::move(call));
  return std::make_unique<OwningCallTask>(context_, resolver_, check_.get(), std::move(call));
}

std::unique_ptr<Task> Channel::start_borrowed(Call& call) {
  if (!prepare(call)) return start_composed(Call(call));
  return std::make_unique<CallTask>(context_, resolver_, check_.get(), call);
}

// Checks and completes a call. Returns whether a CallTask runs it; if not, start_composed() does.
bool Channel::prepare(Call& call) {
  if (context_.broken) throw *context_.broken;
  if (left_) throw Error(ErrorKind::shut_down, "this communicator is closed");
  if (call.root < 0 || call.root >= size())
    throw invalid(name_of(call.collective), ": root ", call.root, " is not a rank of this communicator of ", size(),
                  "; its ranks are 0..", size() - 1);
  if (call.wire) check_encoding(call);
  if (is_adasum(call))
    check_adasum(call);
  else if (computes(call.collective))
    check_arithmetic(call);
  if (call.place) return false;
  if (call.op == Op::average) call.post.divisor *= size();
  if (call.received || (!call.output_per_rank.empty() && !resolver_.writes_per_rank_output(call))) return false;
  context_.departures.begin_call();
  return true;
}

std::unique_ptr<Task> Channel::start_composed(Call&& call) {
  if (call.place) return std::exchange(call.place, nullptr)->start(*this, std::move(call));
  return call.received ? make_gathered_any(*this, std::move(call)) : make_gathered_per_rank(*this, std::move(call));
}

// Calls on sub-channels are not counted; this channel counts their messages.
SubChannels& Channel::sub_channels() {
  if (sub_channels_.host) return sub_channels_;
  const Hosts& hosts = context_.hosts;
  ChannelConfig config = context_.config;
  config.goodbye_tag = -1;
  config.account = nullptr;
  config.algorithm.clear();
  config.device_route = "auto";
  const int local = context_.node->rank();
  const auto make = [&](const std::vector<int>& ranks, int me, std::shared_ptr<Node> node) {
    std::vector<int> peers;
    for (const int rank : ranks) peers.push_back(context_.peers[static_cast<std::size_t>(rank)]);
    return std::make_unique<Channel>(context_.transport, std::move(peers), me, context_.tags.halve(), std::move(node),
                                     context_.epochs->slot() + kSlots, config);
  };
  sub_channels_.host = make(hosts.here(), local, context_.node);
  sub_channels_.lane = make(hosts.lane(local), hosts.mine(), nullptr);
  return sub_channels_;
}

void Channel::look_for_loss() {
  context_.departures.check();
  if (context_.epochs) context_.epochs->look_for_failures();
}

void Channel::fail(const Error& error) {
  context_.end_after(error);
  if (context_.epochs) context_.publish_state(2);
  if (sub_channels_.host) sub_channels_.host->fail(error);
}

void Channel::leave(bool within_call) noexcept {
  if (left_ || size() == 1) return;
  left_ = true;
  if (sub_channels_.host) sub_channels_.host->leave();
  if (context_.epochs && within_call)
    context_.epochs->leave_within_call();
  else if (context_.epochs)
    context_.publish_state(1);
  context_.departures.send_goodbye(within_call);
}

}  // namespace ringcomm

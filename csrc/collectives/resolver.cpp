// Implements Resolver: handles inline data, Adasum and custom algorithms; the Chooser, the rest.
#include "collectives/resolver.hpp"

#include "base/error.hpp"
#include "collectives/adasum.hpp"
#include "host_collectives/payload.hpp"

namespace ringcomm {

namespace {

Terms terms_of(const CallContext& context) {
  const ChannelConfig& config = context.config;
  return {config.network,   context.host_of(), {config.segment_bytes, config.window},
          config.algorithm, config.rules,      config.topology};
}

Memory memory_of(const CallContext& context) {
  return !context.node ? Memory::none : context.on_one_host() ? Memory::everybodys : Memory::on_hosts;
}

std::optional<InlineLimits> most_of(const CallContext& context) {
  if (context.size() == 1 || context.on_one_host() || !context.config.check) return std::nullopt;
  return context.hosts.number() > 1 ? most_by_hosts(terms_of(context), context.hosts)
                                    : most_by_ranks(terms_of(context), context.peers.size());
}

}  // namespace

Resolver::Resolver(CallContext& context)
    : context_(context), most_(most_of(context)), chooser_(context.size(), memory_of(context), terms_of(context)) {}

const Choice& Resolver::choose(const Call& call) {
  static const Choice inline_data{Route::inline_data, nullptr, 0, {0, 1}, "inline"};
  return sends_inline(call) ? inline_data : without_inline_data(call);
}

const Choice& Resolver::without_inline_data(const Call& call) {
  if (is_adasum(call) && context_.size() > 1) return adasum_choice();
  const bool known = call.collective != Collective::alltoall || call.even;  // otherwise totals differ between ranks
  return chooser_.choose(call.collective, call.algorithm, known ? call.nbytes() : 0, call.even,
                         encoding_of(call.wire, call.dtype));
}

bool Resolver::sends_inline(const Call& call) const {
  return most_ && !call.agreed && call.algorithm.empty() && !is_adasum(call) && chooser_.free(call.collective) &&
         fits_inline(call, context_.size(), most_->of(call.collective));
}

// Returns true for all-reduces that do not fit into mailboxes and run in shared memory.
bool Resolver::takes_fragments(const Call& call) {
  if (call.collective != Collective::allreduce || call.nbytes() <= kPayload || context_.size() == 1) return false;
  const Route route = without_inline_data(call).route;
  return route == Route::shared || route == Route::two_levels;
}

std::shared_ptr<const Schedule> Resolver::schedule(const Call& call, const Choice& choice) {
  if (choice.algorithm)
    return context_.schedules.get(*choice.algorithm, context_.me, context_.size(),
                                  choice.algorithm->any_root ? choice.root : call.root);
  const CustomAlgorithms* const custom = context_.config.custom_algorithms.get();
  if (auto schedule = custom ? custom->find(call.collective, context_.me, context_.size(), choice.name) : nullptr)
    return schedule;
  const std::string what = concat(name_of(call.collective), " algorithm '", choice.name, "'");
  // A rank that has joined builds the call from other ranks' descriptors. If it cannot run the
  // call, the call fails on all ranks, so the error is fatal.
  if (call.agreed && choice.name != choice.shown()) {
    throw Error(ErrorKind::transport, what + " is not registered on a rank that has joined; register it on all ranks");
  }
  check_algorithm(call.collective, choice.name, context_.size());
  throw invalid(what, " cannot run here: ",
                (AlgorithmName(choice.name).two_levels ? "it needs several hosts, and shared memory within each of them"
                 : choice.name == kShared              ? "not all ranks share memory"
                                                       : "it needs blocks of equal size on all ranks"));
}

}  // namespace ringcomm

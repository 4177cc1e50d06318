// Adasum is an all-reduce of complete vectors, composed of pairs that kernels::adasum combines. The
// layers below do not know it; a channel calls these functions for everything that is specific to
// it.
#pragma once

#include "collectives/choose.hpp"
#include "collectives/moves.hpp"

namespace ringcomm {

inline bool is_adasum(const Call& call) { return call.op == Op::adasum && computes(call.collective); }
void check_adasum(const Call& call);  // throws Error(invalid), on every rank, for calls that Adasum does not support
const Choice& adasum_choice();        // for several ranks
std::unique_ptr<Task> move_adasum(CallContext& context, const Call& call);

}  // namespace ringcomm

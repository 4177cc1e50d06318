// Defines Adasum, an all-reduce in which kernels::adasum combines complete vectors in pairs. A
// channel calls these functions; the layers below the channel do not distinguish Adasum from other
// ops.
#pragma once

#include "collectives/choose.hpp"
#include "collectives/moves.hpp"

namespace ringcomm {

inline bool is_adasum(const Call& call) { return call.op == Op::adasum && computes(call.collective); }
void check_adasum(const Call& call);  // throws Error(invalid), on every rank, for calls that Adasum does not support
const Choice& adasum_choice();        // for groups of several ranks
std::unique_ptr<Task> move_adasum(CallContext& context, const Call& call);

}  // namespace ringcomm

// Adasum, an all-reduce of whole vectors: composed of pairs, of which kernels::adasum makes one vector each. Nothing
// below knows of it; a channel asks here for what is particular to it.
#pragma once

#include "collectives/choose.hpp"
#include "collectives/moves.hpp"

namespace ringcomm {

inline bool is_adasum(const Call& call) { return call.op == Op::adasum && computes(call.collective); }
void check_adasum(const Call& call);  // throws Error(invalid) for what none is: every rank meets it alike
const Choice& adasum_choice();        // among several ranks
std::unique_ptr<Task> move_adasum(CallContext& context, const Call& call);

}  // namespace ringcomm

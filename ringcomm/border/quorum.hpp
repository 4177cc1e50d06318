// Operations of a quorum (_quorum.pxi), in types that Cython passes.
#pragma once

#include "engine/engine.hpp"
#include "engine/pending.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline std::shared_ptr<Pending> stand(Engine& engine, int set, const Named& request, int least, bool put) {
  return engine.stand(set, request, least, put ? Standing::Rule::put : Standing::Rule::add);
}
inline Standing& standing_of(const Pending& standing) { return *standing.stand_in_round->standing; }
}  // namespace ringcomm_border

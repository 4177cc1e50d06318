// Operations of a quorum (_quorum.pxi), in types that Cython passes.
#pragma once

#include "engine/engine.hpp"
#include "engine/pending.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline std::shared_ptr<Pending> stand(Engine& engine, int set, const Named& request, int least, bool put) {
  return engine.stand(set, request, least, put ? Standing::Rule::put : Standing::Rule::add);
}
inline std::shared_ptr<Operation> operation_of(const std::shared_ptr<Pending>& standing) { return standing; }
inline Standing& standing_of(const Pending& standing) { return *standing.stand_in_round->standing; }
inline void* memory_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
}  // namespace ringcomm_border

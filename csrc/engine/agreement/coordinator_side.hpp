// A process set's agreement on its first rank: what the ranks send goes to the coordinator, its verdicts to the ranks.
// The worker's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/agreement/coordinator.hpp"
#include "engine/context.hpp"
#include "engine/operation_state.hpp"

namespace ringcomm {

class CoordinatorSide {
 public:
  CoordinatorSide(Context& context, int set, const std::vector<int>& ranks);

  // From rank `index` of the set.
  void receive(int index, const ReadyRecord& record);
  void receive(int index, const WithdrawRecord& record);
  void join(int index) { coordinator_.join(index); }
  void block(int index, std::uint64_t read) { coordinator_.block(index, read); }
  void end() { coordinator_.end(); }
  // Sends the others what has become due, and gives what this rank gets of it, if there is anything.
  std::optional<VerdictRecord> decide();
  // Of what ranks wait for since before, a line each.
  std::vector<std::string> stalled(std::int64_t before_ns, std::int64_t now_ns) const;

 private:
  Context& context_;
  const std::uint32_t set_;
  const std::vector<int> ranks_;
  Coordinator coordinator_;
};

std::string seconds_text(std::int64_t ns);

}  // namespace ringcomm

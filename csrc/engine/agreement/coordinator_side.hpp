// The agreement of a process set on its first rank: passes ranks' messages to the coordinator, and
// its verdicts to the ranks. The worker uses it through NamedSet.
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

  // Receive records from rank `index` of the set.
  void receive(int index, const ReadyRecord& record);
  void receive(int index, const WithdrawRecord& record);
  void join(int index) { coordinator_.join(index); }
  void block(int index, std::uint64_t read) { coordinator_.block(index, read); }
  void end() { coordinator_.end(); }
  // Sends due verdicts to the other ranks. Returns those of this rank, if there are any.
  std::optional<VerdictRecord> decide(std::size_t limit);
  // Returns one line for each pending operation that was first submitted before `before_ns`.
  std::vector<std::string> stalled(std::int64_t before_ns, std::int64_t now_ns) const;

 private:
  Context& context_;
  const std::uint32_t set_;
  const std::vector<int> ranks_;
  Coordinator coordinator_;
};

std::string seconds_text(std::int64_t ns);

}  // namespace ringcomm

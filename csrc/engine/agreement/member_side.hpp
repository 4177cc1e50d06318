// A process set's agreement on each of its ranks: says what becomes ready here, and reads verdicts. The worker's.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/agreement/known_names.hpp"
#include "engine/agreement/records.hpp"
#include "engine/executor.hpp"

namespace ringcomm {

class MemberSide {
 public:
  // `me`: this rank's index in the set.
  MemberSide(const Context& context, int set, int me, InFlight& in_flight, const PlanTable& plans, Executor& executor);

  // What the coordinator needs to know, if anything, of operations that were submitted; but for a join.
  std::optional<ReadyRecord> report(const std::vector<OperationStatePtr>& fresh);
  // Hands what is to be run to the executor. If all the others are to run what this rank cannot: why, and nothing
  // more of the record has been read.
  std::optional<Error> read(VerdictRecord&& record);
  std::uint64_t verdicts_read() const { return read_; }

  // Given up here without the coordinator's word: until that comes, a new operation of the name is held back, so that
  // it is not taken for the old one.
  void abandon(const OperationStatePtr& pending, const Error& error);
  const Error* abandoned(const std::string& name) const;  // null: it has not been

 private:
  bool is_over(const OperationStatePtr& pending);
  Ready ready_of(const OperationStatePtr& pending);
  std::uint32_t id_of(OperationState& pending) const;
  void read_failure(const Verdict& verdict);
  std::optional<Error> read_run(Verdict& verdict);
  OperationStatePtr taking_part(const VerdictItem& item, std::uint32_t id, bool absent);
  OperationStatePtr stand_in(const VerdictItem& item, const std::string& name) const;
  OperationStatePtr take_sent(std::uint32_t id);
  const std::string& name_of(const VerdictItem& item, std::uint32_t id) const;
  Error cannot(const std::string& name, bool absent) const;
  void release(const std::string& name);

  const Context& context_;
  const int set_, me_;
  InFlight& in_flight_;
  const PlanTable& plans_;
  Executor& executor_;
  KnownNames known_;
  std::unordered_map<std::uint32_t, OperationStatePtr> sent_;  // by id: what waits under it; null: nothing does
  std::uint64_t read_ = 0, reported_ = 0;                      // verdicts, and of how many the coordinator knows that
  bool joined_ = false;                                        // this rank gives nothing more
  std::unordered_map<std::string, std::deque<std::exception_ptr>>
      failed_before_submit_;  // failed before they were submitted here
  std::map<std::string, Error> abandoned_;
  std::vector<OperationStatePtr> held_;  // submitted under such a name since
};

}  // namespace ringcomm

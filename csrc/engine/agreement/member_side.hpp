// The agreement of a process set on each of its ranks: reports ready operations to the coordinator,
// and reads verdicts. The worker uses it through NamedSet.
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

  // Returns the record about submitted operations for the coordinator, if there is anything to
  // report. Joins are not part of it.
  std::optional<ReadyRecord> report(const std::vector<OperationStatePtr>& fresh);
  // Passes operations to run to the executor. If the other ranks will run an operation that this
  // rank cannot run, returns the reason; then the rest of the record is unread.
  std::optional<Error> read(VerdictRecord&& record);
  std::uint64_t verdicts_read() const { return read_; }

  // Abandons an operation here without the coordinator's answer. Until that answer arrives, a new
  // operation of the name is delayed, so that it is not mistaken for the old one.
  void abandon(const OperationStatePtr& pending, const Error& error);
  const Error* abandoned(const std::string& name) const;  // null: not abandoned

 private:
  bool is_over(const OperationStatePtr& pending);
  Ready ready_of(const OperationStatePtr& pending);
  std::uint32_t id_of(OperationState& pending) const;
  void read_failure(const Verdict& verdict);
  std::optional<Error> read_run(Verdict& verdict);
  OperationStatePtr operation_for(const VerdictItem& item, std::uint32_t id, bool joined);
  OperationStatePtr placeholder_for(const VerdictItem& item, const std::string& name) const;
  OperationStatePtr take_sent(std::uint32_t id);
  const std::string& name_of(const VerdictItem& item, std::uint32_t id) const;
  Error cannot_run(const std::string& name, bool joined) const;
  void release(const std::string& name);

  const Context& context_;
  const int set_, me_;
  InFlight& in_flight_;
  const PlanTable& plans_;
  Executor& executor_;
  KnownNames known_;
  std::unordered_map<std::uint32_t, OperationStatePtr>
      sent_;  // by id: pending operation that was sent with it; null: none
  // verdicts read; and the number that the coordinator knows of
  std::uint64_t read_ = 0, reported_ = 0;
  bool joined_ = false;  // this rank submits nothing more
  std::unordered_map<std::string, std::deque<std::exception_ptr>>
      failed_before_submit_;  // failed before they were submitted here
  std::map<std::string, Error> abandoned_;
  std::vector<OperationStatePtr> held_;  // delayed: an earlier operation of the name was abandoned
};

}  // namespace ringcomm

// The control messages as records, and their encoding: the fields() of each, in that order. All
// ranks run the same binary on the same kind of machine, so numbers are sent as stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/agreement/agreement.hpp"

namespace ringcomm {

struct ReadyRecord {  // to the coordinator
  std::uint32_t set = 0;
  std::uint64_t read = 0;  // verdicts of the set that the sender has read
  std::vector<Ready> entries;
  void fields(auto& visit) { visit(set, read, entries); }
};
struct VerdictRecord {  // from the coordinator
  std::uint32_t set = 0;
  std::uint64_t first = 0;  // number of verdicts[0]; the first verdict of a set is 1
  std::vector<Verdict> verdicts;
  void fields(auto& visit) { visit(set, first, verdicts); }
};
struct WithdrawRecord {  // to the coordinator: the sender withdraws one operation, and continues
  std::uint32_t set = 0;
  std::string name, why;
  void fields(auto& visit) { visit(set, name, why); }
};
struct LeavingRecord {  // to the coordinator: the sender leaves; agree on nothing more
  std::uint32_t set = 0;
};
struct ConfirmedRecord {  // from the coordinator: no verdict follows
  std::uint32_t set = 0;
};
struct SetEnd {
  std::uint32_t set = 0;
  std::uint64_t executed = 0;                                // verdicts
  std::vector<std::pair<std::string, std::uint64_t>> steps;  // per plan: steps completed
  // Ranks that, as far as the sender knows, left the set before it did.
  std::vector<int> because;
  void fields(auto& visit) { visit(set, executed, steps, because); }
};
struct LeaveRecord {     // to every rank: the sender executes these numbers of verdicts and steps, and no more
  bool entirely = true;  // the sender leaves the job; false: only these sets
  std::vector<SetEnd> sets;
  void fields(auto& visit) { visit(entirely, sets); }
};
struct AbortRecord {  // to every rank: the sender met a fatal error
  ErrorKind kind = ErrorKind::transport;
  std::string what;
  std::vector<int> ranks;
  void fields(auto& visit) { visit(kind, what, ranks); }
};

// to the coordinator: the sender submits nothing more, and takes part in the other ranks'
// operations
struct JoinRecord {
  std::uint32_t set = 0;
};

struct BlockedRecord {  // to the coordinator: the sender's callers wait in this set, and submit nothing meanwhile
  std::uint32_t set = 0;
  std::uint64_t read = 0;  // verdicts of the set that the sender has read
};

using Record = std::variant<ReadyRecord, VerdictRecord, WithdrawRecord, LeavingRecord, ConfirmedRecord, LeaveRecord,
                            AbortRecord, JoinRecord, BlockedRecord>;
using Bytes = std::vector<std::byte>;

void encode(const Record& record, Bytes& out);  // appends
// decodes all of `in`; throws Error(transport) if it is malformed
std::vector<Record> decode(std::span<const std::byte> in);

}  // namespace ringcomm

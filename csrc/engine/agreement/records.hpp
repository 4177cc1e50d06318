// What control messages say, as records, and as bytes: the fields() of each, in their order. Ranks run the same binary
// on one kind of machine: numbers travel as they lie.
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
  std::uint64_t first = 0;  // number of verdicts[0]; the first of all is 1
  std::vector<Verdict> verdicts;
  void fields(auto& visit) { visit(set, first, verdicts); }
};
struct WithdrawRecord {  // to the coordinator: the sender gives up one operation, and lives on
  std::uint32_t set = 0;
  std::string name, why;
  void fields(auto& visit) { visit(set, name, why); }
};
struct GoingRecord {  // to the coordinator: the sender leaves; agree on nothing more
  std::uint32_t set = 0;
};
struct ConfirmedRecord {  // from the coordinator: after this, no verdict comes
  std::uint32_t set = 0;
};
struct SetEnd {
  std::uint32_t set = 0;
  std::uint64_t executed = 0;                                // verdicts
  std::vector<std::pair<std::string, std::uint64_t>> steps;  // of plans, completed
  // of ranks that had left the set before; empty: the sender is the first, as far as it knows
  std::vector<int> because;
  void fields(auto& visit) { visit(set, executed, steps, because); }
};
struct LeaveRecord {     // to every rank: the sender executes so much in these sets, and nothing more
  bool entirely = true;  // it leaves the job; else only these sets
  std::vector<SetEnd> sets;
  void fields(auto& visit) { visit(entirely, sets); }
};
struct AbortRecord {  // to every rank: the sender met a fatal error
  ErrorKind kind = ErrorKind::transport;
  std::string what;
  std::vector<int> ranks;
  void fields(auto& visit) { visit(kind, what, ranks); }
};

struct JoinRecord {  // to the coordinator: the sender has nothing more to give, and takes part in what others have
  std::uint32_t set = 0;
};

struct BlockedRecord {  // to the coordinator: the sender's callers wait in this set, and submit nothing more until then
  std::uint32_t set = 0;
  std::uint64_t read = 0;  // verdicts of the set that the sender has read
};

using Record = std::variant<ReadyRecord, VerdictRecord, WithdrawRecord, GoingRecord, ConfirmedRecord, LeaveRecord,
                            AbortRecord, JoinRecord, BlockedRecord>;
using Bytes = std::vector<std::byte>;

void encode(const Record& record, Bytes& out);              // appends
std::vector<Record> decode(std::span<const std::byte> in);  // all of it; throws Error(transport) if it is malformed

}  // namespace ringcomm

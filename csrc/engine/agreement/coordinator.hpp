// The bookkeeping of agreement, without transport, so that it can be tested alone: it takes ready
// operations and returns verdicts. CoordinatorSide connects it to the ranks;
// engine/agreement/agreement.hpp defines the verdicts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/agreement/agreement.hpp"
#include "engine/agreement/id_cache.hpp"
#include "engine/agreement/rows.hpp"
#include "engine/fusion.hpp"

namespace ringcomm {

class Coordinator {
 public:
  static constexpr std::size_t kAll = ~std::size_t{0};

  // `ranks[i]`: number of rank i of the set in messages to users. cache_capacity: names remembered.
  Coordinator(std::vector<int> ranks, std::size_t fusion_bytes, std::size_t cache_capacity);

  // Records that rank `rank` (of the set), which has read `read` verdicts, has this operation
  // ready. Throws Error(internal) for an invalid entry.
  void ready(int rank, std::uint64_t read, const Ready& entry);
  void has_read(int rank, std::uint64_t verdicts);
  // Records that rank `rank` submits nothing more. It takes part in all operations until all ranks
  // have joined.
  void join(int rank);
  // Records that rank `rank` no longer waits for an operation. The operation fails on all ranks,
  // unless it has been agreed meanwhile.
  void withdraw(int rank, const std::string& name, const std::string& why);
  // Records that every caller of rank `rank`, which has read `read` verdicts, is blocked. Once all
  // ranks are blocked, no pending operation can complete, so all of them fail.
  void block(int rank, std::uint64_t read);
  void end();  // a rank is leaving: nothing more is agreed
  // Returns the verdicts that are due, in order. `limit`: as in Rows::take_due().
  std::vector<Verdict> decide(std::size_t limit = kAll);

  std::uint64_t issued() const { return issued_; }                                          // verdicts
  const std::string& name_under(std::uint32_t id) const { return *ids_.at(id).row->name; }  // Throws Error(internal)
  // ranks that have not submitted the operation, as numbered in messages to users
  std::vector<int> missing(const std::string& name);
  struct Waiting {
    std::string name;
    std::int64_t since_ns;           // time of the first submission
    std::vector<int> here, missing;  // ranks
  };
  // operations first submitted before `before_ns`, oldest first
  std::vector<Waiting> waiting(std::int64_t before_ns) const;
  std::size_t ids() const { return ids_.size(); }  // ids that a message in transit may still name

 private:
  struct Early {                // an operation that failed before all ranks had submitted it
    std::uint64_t number;       // number of the verdict
    std::vector<char> missing;  // per rank: its submission is still missing
  };

  std::vector<int> called(std::vector<int> ranks) const;  // as numbered in messages to users
  Verdict& fail_early(Row& row, const std::string& why);
  bool failed_before_submission(int rank, std::uint64_t read, const std::string& name);
  void judge(std::span<Row* const> rows, Fusion& fusion);
  VerdictItem item_of(Row& row, Verdict& verdict);
  void clean_up();

  const std::vector<int> ranks_;
  const std::size_t fusion_bytes_;
  Rows rows_;
  IdCache ids_;
  std::vector<std::uint64_t> read_;  // verdicts, by rank
  std::vector<char> blocked_;        // per rank, since the last submission and verdict
  std::uint64_t issued_ = 0;
  std::vector<Verdict> failures_;  // by fail_early(), since the last decide()
  std::unordered_map<std::string, std::vector<Early>> early_;
  bool ended_ = false;
};

}  // namespace ringcomm

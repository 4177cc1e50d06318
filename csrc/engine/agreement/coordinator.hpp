// The bookkeeping of agreement, without transport, so that it can be tested alone: what became ready goes in, verdicts
// come out. What they mean: engine/agreement/agreement.hpp.
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
  // `ranks[i]` is what rank i of the set is called in texts. cache_capacity: names remembered.
  Coordinator(std::vector<int> ranks, std::size_t fusion_bytes, std::size_t cache_capacity);

  // Rank `rank` (of the set), which has read so many verdicts, has this ready. Throws Error(internal) for nonsense.
  void ready(int rank, std::uint64_t read, const Ready& entry);
  void has_read(int rank, std::uint64_t verdicts);
  // Rank `rank` has nothing more to give, and takes part in what the others have until all have joined.
  void join(int rank);
  // Rank `rank` gives up waiting for it: it fails everywhere, unless it has been agreed meanwhile.
  void withdraw(int rank, const std::string& name, const std::string& why);
  // Every caller of rank `rank`, which has read so many verdicts, is blocked. Once all ranks are, nothing that waits
  // can ever complete: all of it fails.
  void block(int rank, std::uint64_t read);
  void end();                     // a rank is leaving: nothing more is agreed
  std::vector<Verdict> decide();  // what has become due, in order

  std::uint64_t issued() const { return issued_; }                                          // verdicts
  const std::string& name_under(std::uint32_t id) const { return *ids_.at(id).row->name; }  // Throws Error(internal)
  std::vector<int> missing(const std::string& name);  // who is yet to submit it, as called in texts
  struct Waiting {
    std::string name;
    std::int64_t since_ns;           // the first submission
    std::vector<int> here, missing;  // ranks
  };
  std::vector<Waiting> waiting(std::int64_t before_ns) const;  // what was first submitted before, oldest first
  std::size_t ids() const { return ids_.size(); }              // that some message under way may still name

 private:
  struct Early {                // an operation that failed before all had submitted it
    std::uint64_t number;       // of the verdict
    std::vector<char> missing;  // ranks whose submission is still to come
  };

  std::vector<int> called(std::vector<int> ranks) const;  // in texts
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
  std::vector<char> blocked_;        // by rank, since the last submission and verdict
  std::uint64_t issued_ = 0;
  std::vector<Verdict> failures_;  // by withdraw(), since the last decide()
  std::unordered_map<std::string, std::vector<Early>> early_;
  bool ended_ = false;
};

}  // namespace ringcomm

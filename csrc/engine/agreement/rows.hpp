// The coordinator's table of submitted operations: one row per name, independent of the id under
// which a rank submits it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/agreement/agreement.hpp"

namespace ringcomm {

// The row of a name. Hot fields first, so that a step touches few cache lines per name.
struct Row {
  const std::string* name = nullptr;  // key of the row
  std::uint32_t id = 0;               // current id of the name (IdCache); 0: none
  int ids = 0;                        // number of ids that ranks may still use for it, including forgotten ids
  // The submission that is not yet decided, if `count` > 0:
  int count = 0;  // ranks that have submitted it
  // Id that all these ranks used or, if `count` is 0, that all ranks used for the previous
  // submission; 0: no common id.
  std::uint32_t sent_as = 0;
  bool complete = false;  // all ranks have submitted it or joined
  bool due = false;       // complete, with its group, and waiting for operations of higher priority
  bool differs = false;
  std::uint32_t group_size = 1;
  std::int32_t priority = 0;  // highest of the submissions
  std::uint64_t group = 0;
  std::vector<char> here{};                 // by rank
  int first_rank = 0, differing_rank = -1;  // differing_rank: rank with another group than first_rank; -1: none
  std::int64_t since_ns = 0;
  Descriptor first{};                                // signature of the first submission
  std::vector<std::pair<int, Descriptor>> others{};  // signatures that differ from `first`, by rank
  std::vector<std::vector<std::uint64_t>> extras{};  // Ready::extra, by rank; empty if no rank has one

  bool is_here(std::size_t rank) const { return here[rank] != 0; }
};

class Rows {
 public:
  explicit Rows(std::size_t ranks) : joined_(ranks, 0) {}

  Row& of(const std::string& name);
  Row* waiting(const std::string& name);                                // null if no rank has submitted it
  void each_waiting(const std::function<void(const Row&)>& act) const;  // except those that are due

  // Records that `rank` has submitted the row's operation. `id`: as sent; 0: sent with name and
  // signature. Throws Error(internal) if the rank had submitted it before.
  void submit(Row& row, int rank, const Ready& entry, std::uint32_t id, const Descriptor& signature,
              std::int64_t now_ns);
  // Counts rank `rank` as ready for everything, until all have joined and leave_join() is called.
  void join(int rank);
  bool has_joined(int rank) const { return joined_[static_cast<std::size_t>(rank)] != 0; }
  bool all_joined() const { return joined_count_ == static_cast<int>(joined_.size()); }
  int last_joined() const { return last_joined_; }
  void leave_join();
  std::vector<int> placeholder_ranks(const Row& row) const;  // ranks that have joined and not submitted it
  // Returns the ranks that have neither submitted it nor joined; `row` is null if no rank has
  // submitted it.
  std::vector<int> missing(const Row* row) const;

  using Act = std::function<void(std::span<Row* const>)>;
  bool has_complete() const { return !complete_.empty(); }
  // Calls `act` for the operations that are ready on all ranks, one group at a time. While none of
  // them has a priority, these are all, in the order in which they became ready. Otherwise they
  // are ordered by priority, and those after the first `limit` bytes wait for a later call.
  void take_due(std::size_t limit, const Act& act);
  bool has_due() const { return !due_.empty(); }  // operations that take_due() left
  void remove(Row& row);                          // removes the row's submissions, after a decision
  void release(Row& row);                         // forgets the name if it has neither submissions nor ids
  void clear();                                   // removes all submissions

 private:
  bool expected(const Row& row, std::size_t rank) const { return !row.is_here(rank) && !joined_[rank]; }
  bool enough(const Row& row) const;  // complete, because the missing ranks have joined
  void look_if_complete(Row& row);
  void leave_group(Row& row);
  void each_complete(const Act& act);
  void remove_due(Row& row);

  std::vector<char> joined_;  // by rank
  int joined_count_ = 0, last_joined_ = -1;
  std::unordered_map<std::string, Row> rows_;
  std::vector<Row*> complete_;                                   // since the last take_due()
  std::unordered_map<std::uint64_t, std::vector<Row*>> groups_;  // the complete members of each group
  bool prioritised_ = false;            // a row in `complete_`, `groups_` or `due_` may have a priority
  std::vector<std::vector<Row*>> due_;  // operations, or groups, in the order in which they will run
};

}  // namespace ringcomm

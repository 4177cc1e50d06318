// What ranks have ready, as the coordinator keeps it: a row for each name, whatever id a rank submits it under.
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

// What is asked of many names at every step comes first, so that it takes few lines of cache.
struct Row {
  const std::string* name = nullptr;  // its key
  std::uint32_t id = 0;               // that the name has (IdCache); 0: none
  int ids = 0;                        // that ranks may still use for it, forgotten ones included
  // What is submitted and not yet decided, if `count` > 0:
  int count = 0;              // of ranks
  std::uint32_t sent_as = 0;  // the id under which all of them did, or all before; 0: there is none
  bool complete = false;      // here, or joined, are all
  bool differs = false;
  std::uint32_t group_size = 1;
  std::uint64_t group = 0;
  std::vector<char> here{};           // by rank
  int first_rank = 0, odd_rank = -1;  // a rank that gave another group than the first
  std::int64_t since_ns = 0;
  Descriptor first{};                                // of the id sent_as, if there is one
  std::vector<std::pair<int, Descriptor>> others{};  // of ranks that gave not the same bytes as the first
  std::vector<std::vector<std::uint64_t>> extras{};  // by rank, if there are any; empty: absent

  bool is_here(std::size_t rank) const { return here[rank] != 0; }
};

class Rows {
 public:
  explicit Rows(std::size_t ranks) : joined_(ranks, 0) {}

  Row& of(const std::string& name);
  Row* waiting(const std::string& name);  // null: nobody has submitted it
  void each_waiting(const std::function<void(const Row&)>& act) const;

  // `rank` has submitted it: under `id`, or whole. Throws Error(internal) if it had before.
  void submit(Row& row, int rank, const Ready& entry, std::uint32_t id, const Descriptor& signature,
              std::int64_t now_ns);
  // Rank `rank` counts as ready for everything, until all have joined and leave_join() says that this is over.
  void join(int rank);
  bool has_joined(int rank) const { return joined_[static_cast<std::size_t>(rank)] != 0; }
  bool all_joined() const { return joined_count_ == static_cast<int>(joined_.size()); }
  int last_joined() const { return last_joined_; }
  void leave_join();
  std::vector<int> absent(const Row& row) const;   // who has joined and not submitted it
  std::vector<int> missing(const Row* row) const;  // who is yet to submit it; null: nobody has

  // What has become ready everywhere since the last call, a group at a time.
  void take_due(const std::function<void(std::span<Row* const>)>& act);
  void remove(Row& row);   // decided: nothing waits there now
  void release(Row& row);  // forgets the name if there is nothing of it
  void clear();            // nothing waits anywhere

 private:
  bool expected(const Row& row, std::size_t rank) const { return !row.is_here(rank) && !joined_[rank]; }
  bool enough(const Row& row) const;  // without some ranks
  void look_if_complete(Row& row);
  void leave_group(Row& row);

  std::vector<char> joined_;  // by rank
  int joined_count_ = 0, last_joined_ = -1;
  std::unordered_map<std::string, Row> rows_;
  std::vector<Row*> complete_;                                   // since the last take_due()
  std::unordered_map<std::uint64_t, std::vector<Row*>> groups_;  // members that are complete
};

}  // namespace ringcomm

// The coordinator's table of ids for names: it assigns and forgets ids. agreement.hpp explains why
// this is safe.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/agreement/agreement.hpp"
#include "engine/agreement/rows.hpp"

namespace ringcomm {

class IdCache {
 public:
  struct Known {
    Row* row;  // row of the name
    Descriptor signature;
    std::list<std::uint32_t>::iterator use;  // its position in recent_
  };

  explicit IdCache(std::size_t capacity) : capacity_(capacity) {}
  const Known& at(std::uint32_t id) const;  // for an id that a rank may still use. Throws Error(internal)
  // Identifies `row` in an item of verdict `number`: by an id, by a name with a new id, or by the
  // name only. Ids that this forgets are added to the verdict.
  void identify(Row& row, VerdictItem& item, Verdict& verdict, std::uint64_t number);
  // Drops ids that no message in transit can name any more, because all ranks have read
  // `read_by_all` verdicts. Returns the rows that have no ids left.
  std::vector<Row*> clean_up(std::uint64_t read_by_all);
  bool has_forgotten() const { return !forgotten_.empty(); }
  std::size_t size() const { return known_.size(); }  // includes forgotten ids that some rank may not have read about

 private:
  void forget(std::uint32_t id, Verdict& verdict, std::uint64_t number);

  const std::size_t capacity_;
  std::unordered_map<std::uint32_t, Known> known_;
  std::list<std::uint32_t> recent_;  // live ids, most recently used first
  // (number of the verdict that all ranks must have read, id)
  std::deque<std::pair<std::uint64_t, std::uint32_t>> forgotten_;
  std::uint32_t next_id_ = 1;
};

}  // namespace ringcomm

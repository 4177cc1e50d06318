// The ids that names have, as the coordinator gives and forgets them. Why they are safe: agreement.hpp.
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
    Row* row;  // of the name
    Descriptor signature;
    std::list<std::uint32_t>::iterator use;  // where it is in recent_
  };

  explicit IdCache(std::size_t capacity) : capacity_(capacity) {}
  const Known& at(std::uint32_t id) const;  // that a rank may still use. Throws Error(internal)
  // Gives an item of the verdict of this number what names `row`: an id, a name that ranks are to know by it from now
  // on, or only the name. Ids that this forgets go into the verdict.
  void identify(Row& row, VerdictItem& item, Verdict& verdict, std::uint64_t number);
  // All ranks have read so many verdicts: what no message under way can name any more goes. The rows that had it.
  std::vector<Row*> clean_up(std::uint64_t read_by_all);
  bool has_forgotten() const { return !forgotten_.empty(); }
  std::size_t size() const { return known_.size(); }  // forgotten ones not yet known to be so included

 private:
  void forget(std::uint32_t id, Verdict& verdict, std::uint64_t number);

  const std::size_t capacity_;
  std::unordered_map<std::uint32_t, Known> known_;
  std::list<std::uint32_t> recent_;                                // live ids, the last used first
  std::deque<std::pair<std::uint64_t, std::uint32_t>> forgotten_;  // (verdicts to have read, id)
  std::uint32_t next_id_ = 1;
};

}  // namespace ringcomm

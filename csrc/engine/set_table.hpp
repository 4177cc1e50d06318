// The process sets of an engine, by id. Any thread may use it with the context's mutex held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/set.hpp"

namespace ringcomm {

using Sets = std::map<int, std::shared_ptr<NamedSet>>;  // by id

class SetTable {
 public:
  // Add and remove sets, as Engine::add_set and remove_set. Ids are never reused.
  int add(Context& context, std::vector<int> ranks, std::shared_ptr<Node> node, int slot);
  void remove(int id);
  std::shared_ptr<NamedSet> find(int id) const;  // throws Error(invalid)
  const Sets& all() const { return sets_; }
  // Turns are given to sets that are awake: from wake(), until the worker finds that they rest.
  void wake(const std::shared_ptr<NamedSet>& set);
  void take_woken(std::vector<std::shared_ptr<NamedSet>>& awake);  // appends the sets woken since the last call
  std::uint64_t version() const { return version_; }               // version of all(), from 1 on

 private:
  int free_tags(int limit);

  Sets sets_;
  std::vector<std::shared_ptr<NamedSet>> woken_;
  int next_id_ = 0, next_tags_ = 0;
  std::uint64_t version_ = 1;
};

}  // namespace ringcomm

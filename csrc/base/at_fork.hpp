// What must be whole in a forked child too: locked while the process forks, so that no other thread, which the child
// does not have, is in the middle of it.
#pragma once

#include <functional>
#include <map>

namespace ringcomm {

// For as long as it lives. Make it the last member of what it is about. Objects lock in the order of `order`.
class AtFork {
 public:
  struct Actions {
    std::function<void()> lock, unlock;
    std::function<void()> in_child{};  // before it is unlocked there
  };
  AtFork(int order, Actions actions);
  ~AtFork();
  AtFork(const AtFork&) = delete;
  AtFork& operator=(const AtFork&) = delete;

 private:
  std::multimap<int, Actions>::iterator entry_;
};

}  // namespace ringcomm

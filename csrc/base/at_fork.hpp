// Keeps objects consistent in a forked child. The process locks them before it forks and unlocks
// them afterwards. Otherwise another thread could be in the middle of a change, which the child
// could never complete: only the forking thread exists there.
#pragma once

#include <functional>
#include <map>

namespace ringcomm {

// A registration that lasts as long as the object. Declare it as the last member of the object that
// it protects. Registered objects are locked in ascending `order`.
class AtFork {
 public:
  struct Actions {
    std::function<void()> lock, unlock;
    std::function<void()> in_child{};  // runs in the child before `unlock`
  };
  AtFork(int order, Actions actions);
  ~AtFork();
  AtFork(const AtFork&) = delete;
  AtFork& operator=(const AtFork&) = delete;

 private:
  std::multimap<int, Actions>::iterator entry_;
};

}  // namespace ringcomm

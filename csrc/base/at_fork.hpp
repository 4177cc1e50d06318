// Keeps objects consistent in a forked child. The process holds their locks while it forks, because
// a child lacks the other threads, which may be in the middle of a change.
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

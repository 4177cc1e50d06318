// Runs registered actions by pthread_atfork: lock before a fork, unlock after it in both processes.
#include "base/at_fork.hpp"

#include <pthread.h>

#include <mutex>

namespace ringcomm {
namespace {

// The registry is never destroyed: a process may fork while it exits.
struct Registry {
  Registry() { ::pthread_atfork(before, in_parent, in_child); }
  static void before();
  static void in_parent();
  static void in_child();
  std::mutex mutex;
  std::multimap<int, AtFork::Actions> all;
};

Registry& registry() {
  static Registry* const registry = new Registry;
  return *registry;
}

void Registry::before() {
  registry().mutex.lock();
  for (const auto& [order, actions] : registry().all) actions.lock();
}

void Registry::in_parent() {
  for (const auto& [order, actions] : registry().all) actions.unlock();
  registry().mutex.unlock();
}

void Registry::in_child() {
  for (const auto& [order, actions] : registry().all) {
    if (actions.in_child) actions.in_child();
  }
  in_parent();
}

}  // namespace

AtFork::AtFork(int order, Actions actions) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  entry_ = all.all.emplace(order, std::move(actions));
}

AtFork::~AtFork() {
  const std::lock_guard lock(registry().mutex);
  registry().all.erase(entry_);
}

}  // namespace ringcomm

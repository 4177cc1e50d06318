// A service's messages for Python (_letters.pxi).
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/service.hpp"

namespace ringcomm_border {

using Written = std::pair<int, std::string>;  // a rank, and what goes to or came from it

class Letters final : public ringcomm::Service {
 public:
  void post(Written letter) {  // any thread
    const std::lock_guard lock(mutex_);
    if (why_.empty()) posted_.push_back(std::move(letter));
  }
  std::vector<Written> collect() {
    const std::lock_guard lock(mutex_);
    return std::exchange(collected_, {});
  }
  std::string why() {  // no more come; empty: they may
    const std::lock_guard lock(mutex_);
    return why_;
  }

  bool turn(ringcomm::Mail& mail) override {
    const std::lock_guard lock(mutex_);
    bool moved = !posted_.empty();
    for (const auto& [peer, text] : std::exchange(posted_, {})) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
      mail.send(peer, {bytes, bytes + text.size()});
    }
    for (; auto letter = mail.receive(); moved = true) {
      collected_.emplace_back(letter->peer,
                              std::string(reinterpret_cast<const char*>(letter->bytes.data()), letter->bytes.size()));
    }
    return moved;
  }
  void left(int, const ringcomm::Error&) override {}
  void end(const ringcomm::Error& why) override {
    const std::lock_guard lock(mutex_);
    why_ = why.what();
  }

 private:
  std::mutex mutex_;
  std::vector<Written> posted_, collected_;
  std::string why_;
};

}  // namespace ringcomm_border

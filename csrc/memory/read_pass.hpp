// A collective that only moves data, in one copy: from where the givers have it to where it shall be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/task.hpp"
#include "memory/readable.hpp"

namespace ringcomm {

// Everybody has arrived; it ends when everybody has read, for only then may givers go on.
class ReadPass final : public Task {
 public:
  ReadPass(Epochs& epochs, std::uint32_t epoch, std::vector<ReadableBlock> blocks);
  Progress advance() override;
  void nap(std::chrono::nanoseconds longest) override;

 private:
  void read_on();
  void wait_for_loss();

  Epochs& epochs_;
  std::uint32_t epoch_;
  const std::vector<ReadableBlock> blocks_;
  std::size_t block_ = 0, done_ = 0;  // bytes of the block
  bool past_caches_ = false, read_ = false;
  std::string why_not_;  // reading has failed
  std::int64_t failed_ns_ = 0;
};

}  // namespace ringcomm

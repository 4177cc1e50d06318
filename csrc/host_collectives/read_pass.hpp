// A collective that only moves data, in one copy: from where the givers have it to where it shall be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host_collectives/closing_pass.hpp"
#include "host_collectives/readable.hpp"

namespace ringcomm {

// Everybody has arrived; it ends when everybody has read, for only then may givers go on.
class ReadPass final : public ClosingPass {
 public:
  ReadPass(Epochs& epochs, std::uint32_t epoch, std::vector<ReadableBlock> blocks);

 private:
  Progress work() override;
  void read_on();
  void wait_for_loss();

  const std::uint32_t begun_;  // the arrival that it follows
  const std::vector<ReadableBlock> blocks_;
  std::size_t block_ = 0, done_ = 0;  // bytes of the block
  bool past_caches_ = false;
  std::string why_not_;  // reading has failed
  std::int64_t failed_ns_ = 0;
};

}  // namespace ringcomm

// Runs a collective that only moves data with one copy, from the senders' memory to the result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host_collectives/closing_pass.hpp"
#include "host_collectives/readable.hpp"

namespace ringcomm {

// A pass that begins when all ranks have arrived. It ends when all ranks have read, because only
// then may senders change their data.
class ReadPass final : public ClosingPass {
 public:
  ReadPass(Epochs& epochs, std::uint32_t epoch, std::vector<ReadableBlock> blocks);

 private:
  Progress work() override;
  void read_on();
  void wait_for_loss();

  const std::uint32_t begun_;  // the arrival after which it began
  const std::vector<ReadableBlock> blocks_;
  std::size_t block_ = 0, done_ = 0;  // index of the current block; bytes of it that are done
  bool past_caches_ = false;          // for mapped blocks; the kernel's copies always use the caches
  std::string why_not_;               // set when a read has failed
  std::int64_t failed_ns_ = 0;
};

}  // namespace ringcomm

// A call through its host's memory: on the arrays where they lie if all of the host's are shared, else through staging
// memory. What a rank has is said in its opening of the call; which way it goes is known once all have arrived.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory/staged_pass.hpp"

namespace ringcomm {

class InPlaceOrStaged {
 public:
  virtual ~InPlaceOrStaged() = default;

 protected:
  InPlaceOrStaged(Epochs& epochs, const Call& call) : epochs_(epochs), call_(call) {}
  virtual std::unique_ptr<StagedPass> through_staging() = 0;
  virtual std::unique_ptr<Task> in_place(std::vector<std::uint64_t> offsets) = 0;  // of local ranks' arrays

  void open();                      // before the arrival at the call
  void begin(std::uint32_t epoch);  // all have arrived

  Epochs& epochs_;
  const Call& call_;
  std::unique_ptr<Task> pass_;  // from begin() on

 private:
  std::unique_ptr<StagedPass> staged_;
};

}  // namespace ringcomm

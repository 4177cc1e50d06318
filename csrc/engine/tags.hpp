// Divides the tags of the engine's transport. Every rank computes the same division from tag_limit
// alone.
//
//   0 .. 15                      control (only 0 is used)
//   16 .. 127                    services, one each
//   128 + (set * streams + s) * width ...   stream s of a set: s = 0 is the set itself, s >= 1 its
//                                           plan s - 1
//
// MPI guarantees only 32768 tags: enough for 60 sets with 16 plans each, and 32 tags per stream.
// The MPIs in use have 2^28 or more: enough for about 4000 sets with 64 plans each, and 1024 tags
// per stream.
#pragma once

#include <algorithm>

#include "base/error.hpp"
#include "executor/run_schedule.hpp"

namespace ringcomm {

class TagMap {
 public:
  static constexpr int kControl = 0, kControlTags = 16, kServices = 112;

  explicit TagMap(int tag_limit) {
    const int rest = tag_limit - kFirstStream;
    constexpr int kManyPlans = 64, kFewPlans = 16, kManySets = 64;
    width_ = std::clamp(rest / (kManySets * (1 + kManyPlans)), 32, 1024);
    plans_ = rest / width_ >= kManySets * (1 + kManyPlans) ? kManyPlans : kFewPlans;
    sets_ = rest / width_ / (1 + plans_);
    if (sets_ < 1) throw invalid("MPI has too few message tags: ", tag_limit);
  }
  int sets() const { return sets_; }
  int plans() const { return plans_; }  // per set
  int width() const { return width_; }
  static int of_service(int number) {
    if (number >= kServices) throw invalid("at most ", kServices, " services can exist");
    return kControlTags + number;
  }
  TagStream of_set(int slot) const { return stream(slot, 0); }
  TagStream of_plan(int slot, int plan) const { return stream(slot, 1 + plan); }

 private:
  static constexpr int kFirstStream = kControlTags + kServices;
  TagStream stream(int slot, int index) const {
    return {kFirstStream + (slot * (1 + plans_) + index) * width_, width_};
  }
  int width_, plans_, sets_;
};

}  // namespace ringcomm

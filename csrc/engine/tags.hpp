// Divides the tags of the engine's transport. Every rank computes the same division from tag_limit
// alone.
//
//   0 .. 15                      control (only 0 is used)
//   16 .. 127                    services, one each
//   128 + (set * streams + s) * width ...   stream s of a set: 0: the set itself, 1 ..: its plans
//
// MPI guarantees 32768 tags: then 60 sets of 16 plans, 32 tags each. The MPIs in use have 2^28 or
// more: then about 4000 sets of 64 plans, 1024 tags each.
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

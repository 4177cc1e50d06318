// Decides how each call of a channel runs, from data that is equal on all ranks.
#pragma once

#include <memory>
#include <optional>

#include "base/call.hpp"
#include "collectives/consistency/inline_data.hpp"
#include "collectives/context.hpp"

namespace ringcomm {

class Resolver {
 public:
  explicit Resolver(CallContext& context);

  // Limits of inline data; empty if calls are not compared by messages.
  const std::optional<InlineLimits>& inline_limits() const { return most_; }
  const Choice& choose(const Call& call);
  const Choice& without_inline_data(const Call& call);
  bool takes_fragments(const Call& call);  // true: they need not be packed
  bool writes_per_rank_output(const Call& call) { return without_inline_data(call).route == Route::shared; }
  std::shared_ptr<const Schedule> schedule(const Call& call, const Choice& choice);

 private:
  bool sends_inline(const Call& call) const;

  CallContext& context_;
  const std::optional<InlineLimits> most_;
  Chooser chooser_;
};

}  // namespace ringcomm

// What each call of a channel runs as. Depends only on what every rank knows to be equal.
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

  // What may go with the comparison of calls; nothing where they are not compared by messages.
  const std::optional<InlineLimits>& inline_limits() const { return most_; }
  const Choice& choose(const Call& call);
  const Choice& without_inline_data(const Call& call);
  bool takes_fragments(const Call& call);  // not packed
  bool writes_per_rank_output(const Call& call) { return without_inline_data(call).route == Route::shared; }
  std::shared_ptr<const Schedule> schedule(const Call& call, const Choice& choice);

 private:
  bool sends_inline(const Call& call) const;

  CallContext& context_;
  const std::optional<InlineLimits> most_;
  Chooser chooser_;
};

}  // namespace ringcomm

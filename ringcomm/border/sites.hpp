// Sites of frameworks' graphs (_sites.pxi), in types that Cython passes.
#pragma once

#include "border/errors.hpp"
#include "frameworks/site.hpp"

namespace ringcomm_border {
using namespace ringcomm;
// Never destroyed: a framework's threads may run graphs while the process ends.
inline SiteTable& sites() {
  static auto& table = *new SiteTable;
  return table;
}
inline std::uintptr_t site_functions() { return reinterpret_cast<std::uintptr_t>(sites().functions()); }
inline std::shared_ptr<Site> make_site(std::shared_ptr<SetLink> set, int collective, std::vector<std::string> names,
                                       int op, int root, double pre, double post, std::vector<std::uint64_t> wires,
                                       std::string algorithm, bool splits) {
  SiteSpec spec;
  spec.call.collective = static_cast<Collective>(collective);
  spec.call.op = static_cast<Op>(op);
  spec.call.root = root;
  spec.call.pre.factor = pre;
  spec.call.post.factor = post;
  spec.call.algorithm = std::move(algorithm);
  spec.names = std::move(names);
  spec.wires = std::move(wires);
  spec.splits = splits;
  return std::make_shared<Site>(std::move(set), std::move(spec));
}
inline void raise_failure(Site& site) { rethrow(site.take_failure()); }
}  // namespace ringcomm_border

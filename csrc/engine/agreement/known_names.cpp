// Implements KnownNames: lookup in both directions, and forgetting of ids.
#include "engine/agreement/known_names.hpp"

#include "engine/agreement/agreement.hpp"

namespace ringcomm {

std::uint32_t KnownNames::find(const std::string& name, const Descriptor& signature) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() && same_signature(found->second.signature, signature) ? found->second.id : 0;
}

const std::string& KnownNames::name_of(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end())
    throw Error(ErrorKind::internal, "the coordinator used a cache id that it had not assigned");
  return found->second;
}

void KnownNames::learn(std::uint32_t id, const std::string& name, const Descriptor& signature) {
  by_name_[name] = {id, signature};
  by_id_[id] = name;
}

void KnownNames::forget(std::uint32_t id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  ++forgets_;
  if (const auto name = by_name_.find(found->second); name != by_name_.end() && name->second.id == id)
    by_name_.erase(name);
  by_id_.erase(found);
}

}  // namespace ringcomm

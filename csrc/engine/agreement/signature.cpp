// Implements the conversion between requests and signatures.
#include "engine/agreement/signature.hpp"

#include "base/fields.hpp"
#include "collectives/consistency/describe.hpp"
#include "device/placeholder.hpp"

namespace ringcomm {

namespace {

std::size_t agreed_count(const NamedRequest& request) {
  if (has_rows_per_rank(request.call.collective)) return request.row;
  return request.call.collective == Collective::reducescatter ? request.rows * request.row : request.call.elements();
}

}  // namespace

Descriptor signature_of(const NamedRequest& request) {
  Descriptor d = describe_kind(request.call);
  d.count = agreed_count(request);
  d.row = request.row;
  d.shape = Hash().add(request.call.shape).add(request.row).value();
  return d;
}

std::vector<std::uint64_t> extra_of(const NamedRequest& request) {
  const Collective collective = request.call.collective;
  if (!has_rows_per_rank(collective)) return {};
  std::vector<std::uint64_t> extra{request.rows};
  if (collective == Collective::alltoall) extra.insert(extra.end(), request.splits.begin(), request.splits.end());
  return extra;
}

// The placeholder has no buffers; it gets them when it runs (bucket.cpp, plan_run.cpp).
OperationStatePtr make_placeholder(const std::string& name, const Descriptor& signature) {
  auto pending = std::make_shared<OperationState>(name);
  pending->is_placeholder = true;
  pending->signature = signature;
  if (signature.plan) pending->kind = OperationState::Kind::step;
  NamedRequest& request = pending->request;
  request.row = signature.row;
  Call& call = request.call;
  call.collective = static_cast<Collective>(signature.collective);
  call.dtype = static_cast<DType>(signature.dtype);
  call.op = static_cast<Op>(signature.op);
  call.root = signature.root;
  call.algorithm = text_of(signature.algorithm);
  call.pre = signature.pre.scale();
  call.post = signature.post.scale();
  call.wire = Wire::of(signature.wire);
  call.name = name;
  call.count = signature.count;
  call.on_device = signature.on_device != 0;
  if (call.on_device) call.place = placeholder_location();
  if (call.collective == Collective::reducescatter && request.row > 0) request.rows = signature.count / request.row;
  return pending;
}

}  // namespace ringcomm

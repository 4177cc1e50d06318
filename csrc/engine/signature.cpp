#include "engine/signature.hpp"

#include "base/fields.hpp"
#include "device/stand_in.hpp"

namespace ringcomm {

namespace {

std::size_t agreed_count(const Named& request) {
  switch (request.call.collective) {
    case Collective::allgather:
    case Collective::alltoall:
      return request.row;
    case Collective::reducescatter:
      return request.rows * request.row;
    case Collective::barrier:
      return 0;
    default:
      return request.call.count;
  }
}

}  // namespace

// The fields that a collective does not use are left out.
Descriptor signature_of(const Named& request) {
  const Call& call = request.call;
  Descriptor d;
  d.collective = static_cast<std::uint8_t>(call.collective);
  d.dtype = static_cast<std::uint8_t>(call.dtype);
  if (computes(call.collective)) {
    d.op = static_cast<std::uint8_t>(call.op);
    d.pre = ScaleBits(call.pre);
    d.post = ScaleBits(call.post);
  }
  d.wire = call.wire.code();
  d.on_device = call.on_device;
  if (has_root(call.collective)) d.root = call.root;
  d.count = agreed_count(request);
  d.row = request.row;
  d.shape = Hash().add(call.shape).add(request.row).value();
  write_field(d.algorithm, call.algorithm);
  write_field(d.name, call.name);
  write_field(d.shape_text, call.shape_text);
  return d;
}

std::vector<std::uint64_t> extra_of(const Named& request) {
  const Collective collective = request.call.collective;
  if (!tells_rows(collective)) return {};
  std::vector<std::uint64_t> extra{request.rows};
  if (collective == Collective::alltoall) extra.insert(extra.end(), request.splits.begin(), request.splits.end());
  return extra;
}

// Without buffers, which it gets when it runs (bucket.cpp, plan_run.cpp).
PendingPtr stand_in_for(const std::string& name, const Descriptor& signature) {
  auto pending = std::make_shared<Pending>(name);
  pending->stand_in = true;
  pending->signature = signature;
  if (signature.plan) pending->kind = Pending::Kind::step;
  Named& request = pending->request;
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
  if (call.on_device) call.place = stand_in_place();
  if (call.collective == Collective::reducescatter && request.row > 0) request.rows = signature.count / request.row;
  return pending;
}

}  // namespace ringcomm

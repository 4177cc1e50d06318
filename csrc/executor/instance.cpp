// Implements an instance: starts rounds, applies writes to blocks, and scales the data.
#include "executor/instance.hpp"

#include "base/error.hpp"

namespace ringcomm {

void Instance::open(std::size_t segment, int tag) {
  segment_ = segment;
  tag_ = tag;
  round_ = 0;
  trace_.begin();
  blocks_.open(segment);
  packing_.open();
  if (finished()) {
    fill();
    finish();
    return;
  }
  messages(0).prepare(context_.round(0));
  messages(0).post_receives(tag_, true);
  fill();
  begin_round();
}

void Instance::fill() {
  if (!context_.fills()) return;
  const Extent whole = context_.layout.segment(segment_);
  if (whole.count == 0) return;
  const std::byte* from = whole.data;
  if (context_.source) from = context_.source + (whole.data - context_.layout.segment(0).data);
  const RunOptions& options = context_.options;
  if (options.pre.identity()) return kernels::copy(whole.data, from, blocks_.bytes(whole));
  kernels::scale(options.dtype, whole.data, from, whole.count, options.pre);
}

void Instance::finish() {
  const RunOptions& options = context_.options;
  for (const std::int32_t block : context_.encodings.noncanonical) packing_.canonicalize(block);
  if (options.post.identity()) return;
  const Extent whole = context_.layout.segment(segment_);
  if (whole.count > 0) kernels::scale(options.dtype, whole.data, whole.data, whole.count, options.post);
}

void Instance::begin_round() {
  messages(round_).post_receives(tag_, false);
  messages(round_).post_sends(tag_);
  write_ = context_.round(round_).first_write;
  if (round_ + 1 == context_.program.rounds.size()) return;
  messages(round_ + 1).prepare(context_.round(round_ + 1));
  messages(round_ + 1).post_receives(tag_, true);
}

bool Instance::run_writes(const RoundMessages& messages) {
  bool moved = false;
  for (; write_ < context_.round(round_).end_write; ++write_) {
    const Write& write = context_.program.writes[write_];
    if (receives(write.kind) && !messages.here(write.message)) break;
    if (write.guarded && messages.reads_blocks()) break;
    apply(write, receives(write.kind) ? messages.piece(write.piece) : Bytes{});
    moved = true;
  }
  return moved;
}

void Instance::apply(const Write& write, Bytes arrived) {
  const RunOptions& options = context_.options;
  const Extent& block = blocks_[write.block];
  const Extent source = write.source >= 0 ? blocks_[write.source] : block;
  if (source.count != block.count) {
    throw Error(ErrorKind::mismatch, concat("block ", write.block, " has ", block.count,
                                            " elements, but the algorithm writes ", source.count, " elements to it"));
  }
  if (block.count == 0) return;
  switch (write.kind) {
    case StepKind::send:
      return;
    case StepKind::copy:
      if (options.codec) packing_.keep_copy(write.block, write.source);
      return kernels::copy(block.data, source.data, blocks_.bytes(block));
    case StepKind::combine:
      return reduce(write, block, source.data);
    case StepKind::receive:
      if (!arrived.data) return;  // the data was received in place
      if (!options.codec) return kernels::copy(block.data, arrived.data, arrived.nbytes);
      options.codec->decode(arrived.data, arrived.nbytes, block.data, block.count);
      return packing_.keep(write.block, arrived);
    case StepKind::reduce:
      if (!options.codec) return reduce(write, block, arrived.data);
      if (!options.combine) {
        return options.codec->decode_reduce(arrived.data, arrived.nbytes, block.data, block.count, options.op,
                                            write.incoming_first);
      }
      decoded_.require(blocks_.bytes(block));
      options.codec->decode(arrived.data, arrived.nbytes, decoded_.data(), block.count);
      return reduce(write, block, decoded_.data());
  }
}

void Instance::reduce(const Write& write, const Extent& block, const std::byte* incoming) const {
  const RunOptions& options = context_.options;
  const std::byte* first = write.incoming_first ? incoming : block.data;
  const std::byte* second = write.incoming_first ? block.data : incoming;
  if (options.combine) return options.combine(block.data, first, second, block.count);
  kernels::reduce(options.dtype, options.op, block.data, first, second, block.count);
}

bool Instance::advance() {
  bool moved = false;
  while (!finished()) {
    RoundMessages& now = messages(round_);
    moved |= now.collect();
    moved |= run_writes(now);
    if (write_ < context_.round(round_).end_write || !now.over()) return moved;
    moved = true;
    ++round_;
    trace_.ended_before(round_, segment_);
    if (finished())
      finish();
    else
      begin_round();
  }
  return moved;
}

void Instance::abandon() noexcept {
  bool any = false;
  for (RoundMessages& round : messages_) any |= round.abandon();
  if (!any || context_.transport.in_flight() == 0) return;
  for (RoundMessages& round : messages_) round.leak();
  blocks_.leak();
  decoded_.leak();
}

}  // namespace ringcomm

// What an instance does to its blocks: copies, and reductions of what has come.
#include <string>

#include "base/error.hpp"
#include "messages/instance.hpp"

namespace ringcomm {

// In the order listed, as far as what has come allows.
bool Instance::run_writes() {
  bool moved = false;
  for (; write_ < program(round_).end_write; ++write_) {
    const Write& write = context_.program.writes[write_];
    if (receives(write.kind) && stage(round_).incoming[write.message].pending > 0) break;
    if (write.guarded && reading_blocks_ > 0) break;
    apply(write);
    moved = true;
  }
  return moved;
}

void Instance::apply(const Write& write) {
  const RunOptions& options = context_.options;
  const Extent& block = extent(write.block);
  const Extent source = write.source >= 0 ? extent(write.source) : block;
  if (source.count != block.count) {
    throw Error(ErrorKind::mismatch, "block " + std::to_string(write.block) + " has " + std::to_string(block.count) +
                                         " elements, and " + std::to_string(source.count) + " were to be put into it");
  }
  if (block.count == 0) return;
  const Bytes arrived = write.source >= 0 ? Bytes{} : stage(round_).arrived[write.piece];
  switch (write.kind) {
    case StepKind::send:
      return;
    case StepKind::copy:
      if (options.codec) keep(write.block, kept_[static_cast<std::size_t>(write.source)]);
      return kernels::copy(block.data, source.data, bytes_of(block));
    case StepKind::combine:
      return reduce(write, block, source.data);
    case StepKind::receive:
      if (!arrived.data) return;  // it is there already
      if (!options.codec) return kernels::copy(block.data, arrived.data, arrived.nbytes);
      options.codec->decode(arrived.data, arrived.nbytes, block.data, block.count);
      return keep(write.block, arrived);
    case StepKind::reduce:
      if (!options.codec) return reduce(write, block, arrived.data);
      if (!options.combine) {
        return options.codec->decode_reduce(arrived.data, arrived.nbytes, block.data, block.count, options.op,
                                            write.incoming_first);
      }
      decoded_.require(bytes_of(block));
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

}  // namespace ringcomm

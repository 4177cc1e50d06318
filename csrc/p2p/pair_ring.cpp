// Implements both ends of a PairRing.
#include "p2p/pair_ring.hpp"

namespace ringcomm {

Cell* RingWriter::next() {
  if (cells_ - cells_read_ == PairRing::kCells) {
    cells_read_ = ring_->cells_read.load(std::memory_order_acquire);
    if (cells_ - cells_read_ == PairRing::kCells) return nullptr;
  }
  return &ring_->cells[cells_ % PairRing::kCells];
}

// The store is seq_cst, because the writer looks for sleepers next.
void RingWriter::publish() {
  Cell& cell = ring_->cells[cells_ % PairRing::kCells];
  cell.stamp.store(++cells_, std::memory_order_seq_cst);
}

std::byte* RingWriter::reserve(std::size_t nbytes, std::uint64_t& where) {
  const std::size_t size = (nbytes + PairRing::kLine - 1) / PairRing::kLine * PairRing::kLine;
  std::uint64_t begin = bytes_;
  if (begin % PairRing::kBytes + size > PairRing::kBytes) begin += PairRing::kBytes - begin % PairRing::kBytes;
  if (begin + size - bytes_read_ > PairRing::kBytes) {
    bytes_read_ = ring_->bytes_read.load(std::memory_order_acquire);
    if (begin + size - bytes_read_ > PairRing::kBytes) return nullptr;
  }
  where = begin;
  bytes_ = begin + size;
  return ring_->bytes + begin % PairRing::kBytes;
}

void RingReader::pop(const Cell& cell) {
  if (cell.kind == CellKind::part) {
    const std::uint64_t end = cell.where + (cell.nbytes + PairRing::kLine - 1) / PairRing::kLine * PairRing::kLine;
    ring_->bytes_read.store(end, std::memory_order_release);
  }
  ring_->cells_read.store(++cells_, std::memory_order_release);
}

}  // namespace ringcomm

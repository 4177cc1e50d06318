// What one rank says to another of its host: a ring of cells and a ring of bytes, in memory that both map. One writes,
// one reads, neither waits.
//
// A cell is a control message or the start of a message, with the data of a small one: who reads polls the stamp of the
// next cell, so that one cache line brings it all. Data that does not fit goes through the ring of
// bytes, in pieces that
// a cell names. Cells are read in order, and at once: what nobody wants yet is kept elsewhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ringcomm {

enum class CellKind : std::uint32_t {
  whole,      // a message with its data in the cell
  begin,      // a message whose data follows, as parts
  part,       // of message `id`: so many bytes, in the ring of bytes at `where`
  announce,   // a message whose data waits with the sender; in its arena at `where`, or kPrivate
  grant,      // to the sender: put it at `where` in the receiver's arena; kPrivate: send it as parts
  placed,     // the sender has put all of it there
  taken,      // to the sender: the receiver has it, or wants it no more
  withdrawn,  // the sender has given it up
};

struct alignas(64) Cell {
  static constexpr std::size_t kRoom = 256 - 40;
  std::atomic<std::uint64_t> stamp{0};  // its number, counted from 1, once it can be read
  CellKind kind{};
  std::int32_t tag = 0;
  std::uint64_t nbytes = 0;  // of the message; of a part: of the part
  std::uint64_t id = 0;      // of the message, counted by its sender
  std::uint64_t where = 0;
  std::byte data[kRoom];
};
static_assert(sizeof(Cell) == 256);

struct PairRing {
  static constexpr std::size_t kCells = 128, kBytes = 512 << 10, kLine = 64;
  alignas(64) std::atomic<std::uint64_t> cells_read{0};
  std::atomic<std::uint64_t> bytes_read{0};
  Cell cells[kCells];
  alignas(64) std::byte bytes[kBytes];
};

class RingWriter {
 public:
  explicit RingWriter(PairRing* ring = nullptr) : ring_(ring) {}
  explicit operator bool() const { return ring_ != nullptr; }
  Cell* next();    // to be filled; null: full
  void publish();  // it; whoever sleeps over there has to be woken
  // Contiguous bytes for the cell's data; null: full. `where` is for the cell, which must be published
  // if it is not null.
  std::byte* reserve(std::size_t nbytes, std::uint64_t& where);

 private:
  PairRing* ring_;
  std::uint64_t cells_ = 0, bytes_ = 0;            // written
  std::uint64_t cells_read_ = 0, bytes_read_ = 0;  // as last seen
};

class RingReader {
 public:
  explicit RingReader(PairRing* ring = nullptr) : ring_(ring) {}
  explicit operator bool() const { return ring_ != nullptr; }
  const Cell* next() const {  // null: there is none
    const Cell& cell = ring_->cells[cells_ % PairRing::kCells];
    return cell.stamp.load(std::memory_order_seq_cst) == cells_ + 1 ? &cell : nullptr;
  }
  const std::byte* bytes(const Cell& part) const { return ring_->bytes + part.where % PairRing::kBytes; }
  void pop(const Cell& cell);  // it, and its bytes

 private:
  PairRing* ring_;
  std::uint64_t cells_ = 0;  // read
};

}  // namespace ringcomm

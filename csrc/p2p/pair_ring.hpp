// Carries messages from one rank to another of its host: a ring of cells and a ring of bytes, in
// memory that both map. One rank writes and the other reads; neither blocks. HostRoute uses one per
// direction.
//
// A cell contains a control message or the header of a message; for a small message, it also
// contains the data. The reader polls the stamp of the next cell, so one cache line contains the
// stamp, the header and the first data. Data that does not fit is stored in the ring of bytes, in
// parts that a cell describes. Cells are read in order, and without delay: messages without a
// receive are stored elsewhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ringcomm {

enum class CellKind : std::uint32_t {
  whole,      // a message with its data in the cell
  begin,      // a message; its data follows as parts
  part,       // a part of message `id`: `nbytes` bytes, in the ring of bytes at `where`
  announce,   // a message; its data stays with the sender: at `where` in its arena, or outside (kPrivate)
  grant,      // to the sender: write the data to `where` in the receiver's arena; kPrivate: send it as parts
  placed,     // the sender has written all data to the granted address
  taken,      // to the sender: the receiver has read or dropped the message
  withdrawn,  // the sender has withdrawn the message
};

struct alignas(64) Cell {
  static constexpr std::size_t kRoom = 256 - 40;
  std::atomic<std::uint64_t> stamp{0};  // the cell's number, counted from 1; set once the cell can be read
  CellKind kind{};
  std::int32_t tag = 0;
  std::uint64_t nbytes = 0;  // size of the message; in a part: size of the part
  std::uint64_t id = 0;      // number of the message, counted by its sender
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
  Cell* next();    // the cell to fill; null if the ring is full
  void publish();  // publishes that cell; the caller wakes the reader if it sleeps
  // Returns contiguous bytes for the cell's data, or null if the ring is full. Sets `where` for the
  // cell. If the result is not null, the cell must be published.
  std::byte* reserve(std::size_t nbytes, std::uint64_t& where);

 private:
  PairRing* ring_;
  std::uint64_t cells_ = 0, bytes_ = 0;            // written
  std::uint64_t cells_read_ = 0, bytes_read_ = 0;  // as last read
};

class RingReader {
 public:
  explicit RingReader(PairRing* ring = nullptr) : ring_(ring) {}
  explicit operator bool() const { return ring_ != nullptr; }
  const Cell* next() const {  // null: none is published
    const Cell& cell = ring_->cells[cells_ % PairRing::kCells];
    return cell.stamp.load(std::memory_order_seq_cst) == cells_ + 1 ? &cell : nullptr;
  }
  const std::byte* bytes(const Cell& part) const { return ring_->bytes + part.where % PairRing::kBytes; }
  void pop(const Cell& cell);  // frees the cell and its bytes

 private:
  PairRing* ring_;
  std::uint64_t cells_ = 0;  // read
};

}  // namespace ringcomm

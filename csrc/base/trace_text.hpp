// Events as the text of a Chrome trace: what Perfetto and chrome://tracing read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/trace.hpp"

namespace ringcomm {

// One row per tensor, and below it one for each lane of its pipeline: events of a row must not overlap. Calls that are
// named "call 7 of X" have one row, X. Messages, and waits for them, may overlap: Chrome's asynchronous events.
class TraceText {
 public:
  TraceText(int rank, bool mark_cycles) : rank_(rank), mark_cycles_(mark_cycles) {}
  int row(std::string_view name, int lane = -1);  // its number; the next text describes a new one
  // JSON objects with ",\n" between them: rows that are new, then the events.
  std::string text(std::span<const TraceEvent> events);

 private:
  void add(const TraceEvent& event, std::string& out);
  void add_overlapping(const TraceEvent& event, std::string& out);
  void describe(std::string_view kind, int row);

  const int rank_;
  const bool mark_cycles_;
  std::unordered_map<std::string, std::map<int, int>> rows_;  // name, lane: number
  std::unordered_map<std::string, int> indices_;              // of names, in the order of rows
  int last_ = 0;
  std::uint64_t overlapping_ = 0;  // such events, so far
  std::string new_rows_;
};

}  // namespace ringcomm

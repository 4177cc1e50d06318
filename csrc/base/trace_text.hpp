// Formats events as the text of a Chrome trace, which Perfetto and chrome://tracing read.
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

// A writer with one row per tensor. Each lane of a pipeline has one more row below it, because
// events of a row must not overlap. Calls named "call 7 of X" share the row X. Messages, and waits
// for them, may overlap: they become Chrome's asynchronous events.
class TraceText {
 public:
  TraceText(int rank, bool mark_cycles) : rank_(rank), mark_cycles_(mark_cycles) {}
  int row(std::string_view name, int lane = -1);  // returns the row's number; the next text() describes new rows
  // Returns JSON objects separated by ",\n": first descriptions of new rows, then the events.
  std::string text(std::span<const TraceEvent> events);

 private:
  void add(const TraceEvent& event, std::string& out);
  void add_overlapping(const TraceEvent& event, std::string& out);
  void describe(std::string_view kind, int row);

  const int rank_;
  const bool mark_cycles_;
  std::unordered_map<std::string, std::map<int, int>> rows_;  // name, lane -> row number
  std::unordered_map<std::string, int> indices_;              // index of each name in the rows
  int last_ = 0;
  std::uint64_t overlapping_ = 0;  // asynchronous events so far; gives their ids
  std::string new_rows_;
};

}  // namespace ringcomm

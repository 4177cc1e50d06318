// Holds the data that all instances of a task share.
#pragma once

#include <memory>
#include <vector>

#include "executor/program.hpp"
#include "executor/run_schedule.hpp"
#include "schedule/layout.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

struct RunContext {
  Transport& transport;
  std::shared_ptr<const Schedule> schedule;
  std::vector<int> peers;
  Layout layout;
  const std::byte* source;  // null: the layout holds the input already
  RunOptions options;
  Program program;
  Encodings encodings;  // set only with a codec

  bool fills() const { return source || !options.pre.identity(); }  // input is copied or scaled first
  const RoundProgram& round(std::size_t number) const { return program.rounds[number]; }
  int peer(const Message& message) const { return peers[static_cast<std::size_t>(message.peer)]; }
};

}  // namespace ringcomm

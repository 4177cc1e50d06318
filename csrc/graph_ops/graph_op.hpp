// A graph operation is a collective in a framework's graph, or in an eager program. It holds what is known when the
// graph is traced. Each run brings arrays, with their shapes and their memory.
//
// A graph operation of several tensors is one group: they run together. Their requests to the engine are prepared once
// and kept, so that a step whose shapes have not changed prepares nothing.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/request.hpp"
#include "graph_ops/graph_op_functions.h"
#include "graph_ops/left_out.hpp"
#include "graph_ops/set_link.hpp"

namespace ringcomm {

struct OperationState;

struct GraphOpSpec {
  Call call;                                 // collective, op, root (in the set), scales, algorithm
  std::vector<std::string> names;            // of the operations: one for each tensor
  std::vector<std::uint64_t> wires;          // codes of what each travels as; empty: as it is
  std::vector<std::uint64_t> first_wires{};  // in so many first runs:
  std::uint64_t first_runs = 0;
  bool keeps = false;   // what encoders leave out is added in the next run
  bool splits = false;  // alltoall: a second input says rows to each rank, and a second result from each
  bool even = false;    // the graph was traced for as many rows on every rank: they are compared too
  // Not null: no collective. The graph operation calls this on its inputs, which may be none, in runs that are due
  // (SetLink::due) every `every` runs, and gives one byte, which what must come later can depend on.
  std::function<void(std::uint64_t run_number, const ringcomm_run&)> look{};
  std::uint64_t every = 0;
};

class GraphOp {
 public:
  GraphOp(std::shared_ptr<SetLink> set, GraphOpSpec spec) : set_(std::move(set)), spec_(std::move(spec)) {}
  // Throws what the operations met, once all of them are over. What it throws is also kept.
  void run(const ringcomm_run& run);
  std::exception_ptr take_failure();  // of the last run that failed
  // What is left out of a tensor (LeftOut). Throws Error(invalid) while a run is under way.
  std::vector<float> residual(std::size_t tensor);
  void set_residual(std::size_t tensor, std::vector<float> values);

 private:
  struct Prepared {  // the group, as it was run last
    std::uint64_t epoch = 0;
    std::vector<int> dtypes;
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::shared_ptr<OperationState>> group;
    const std::vector<std::uint64_t>* wires = nullptr;  // of the spec's
    bool fits(const SetLink::Live& live, const ringcomm_run& run, std::size_t count) const;
  };

  void run_in(const SetLink::Live& live, const ringcomm_run& run);
  void look_in(const ringcomm_run& run);
  NamedRequest request_of(const SetLink::Live& live, const ringcomm_run& run, std::size_t index,
                          const std::vector<std::uint64_t>& wires);
  Prepared prepared_for(const SetLink::Live& live, const ringcomm_run& run);
  LeftOut& left_out();
  void place_results(const SetLink::Live& live, const ringcomm_run& run, Prepared& prepared) const;
  void give_results(const ringcomm_run& run, const Prepared& prepared) const;

  const std::shared_ptr<SetLink> set_;
  const GraphOpSpec spec_;
  std::mutex mutex_;
  Prepared kept_;  // taken out while a run uses it
  std::uint64_t runs_ = 0;
  bool running_ = false;
  LeftOut left_out_;
  std::exception_ptr failure_;
};

// Graph operations by number, for the table of functions that frameworks' libraries get.
class GraphOpTable {
 public:
  GraphOpTable();
  GraphOpTable(const GraphOpTable&) = delete;
  std::int64_t add(std::shared_ptr<GraphOp> graph_op);
  void remove(std::int64_t id);
  std::shared_ptr<GraphOp> find(std::int64_t id) const;  // Throws Error(invalid)
  const ringcomm_graph_ops* functions() const { return &functions_; }

 private:
  static void run(void* self, std::int64_t id, const ringcomm_run* run);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<GraphOp>> ops_;
  std::vector<std::int64_t> free_;
  ringcomm_graph_ops functions_;
};

}  // namespace ringcomm

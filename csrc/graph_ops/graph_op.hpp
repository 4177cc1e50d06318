// A graph operation is a collective in a framework's graph, or in an eager program. It holds the
// parameters that are known when the graph is traced. Each run supplies arrays, with their shapes
// and addresses.
//
// A graph operation with several tensors is a group of named operations that run together. Its
// requests to the engine are prepared once and kept, so a step with unchanged shapes prepares
// nothing.
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
#include "graph_ops/residuals.hpp"
#include "graph_ops/set_link.hpp"

namespace ringcomm {

struct OperationState;

struct GraphOpSpec {
  Call call;                                 // collective, op, root (in the set), scales, algorithm
  std::vector<std::string> names;            // names of the operations: one per tensor
  std::vector<std::uint64_t> wires;          // wire format codes, one per tensor; empty: uncompressed
  std::vector<std::uint64_t> first_wires{};  // wire formats of the first `first_runs` runs
  std::uint64_t first_runs = 0;
  bool keeps = false;  // residuals of encoders are added in the next run
  // alltoall: the second input has the number of rows to send to each rank. The second result has
  // the number of rows received from each rank.
  bool splits = false;
  // The graph was traced for equal numbers of rows on all ranks, so ranks compare these too.
  bool even = false;
  // If set, the graph operation is no collective. It calls this function on its inputs, if any, in
  // every `every`th run (SetLink::due). Its result is one byte, on which later operations of the
  // graph can depend.
  std::function<void(std::uint64_t run_number, const ringcomm_run&)> look{};
  std::uint64_t every = 0;
};

class GraphOp {
 public:
  GraphOp(std::shared_ptr<SetLink> set, GraphOpSpec spec) : set_(std::move(set)), spec_(std::move(spec)) {}
  // Runs the group. Throws the error of an operation once all operations have ended; also stores it
  // for take_failure().
  void run(const ringcomm_run& run);
  std::exception_ptr take_failure();  // returns the failure of the last run that failed
  // Access the residual of a tensor (Residuals). Throws Error(invalid) while a run is in progress.
  std::vector<float> residual(std::size_t tensor);
  void set_residual(std::size_t tensor, std::vector<float> values);

 private:
  struct Prepared {  // the group as it was run last
    std::uint64_t epoch = 0;
    std::vector<int> dtypes;
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::shared_ptr<OperationState>> group;
    const std::vector<std::uint64_t>* wires = nullptr;  // points into the spec
    bool fits(const SetLink::Live& live, const ringcomm_run& run, std::size_t count) const;
  };

  void run_in(const SetLink::Live& live, const ringcomm_run& run);
  void look_in(const ringcomm_run& run);
  NamedRequest request_of(const SetLink::Live& live, const ringcomm_run& run, std::size_t index,
                          const std::vector<std::uint64_t>& wires);
  Prepared prepared_for(const SetLink::Live& live, const ringcomm_run& run);
  Residuals& residuals();
  void place_results(const SetLink::Live& live, const ringcomm_run& run, Prepared& prepared) const;
  void give_results(const ringcomm_run& run, const Prepared& prepared) const;

  const std::shared_ptr<SetLink> set_;
  const GraphOpSpec spec_;
  std::mutex mutex_;
  Prepared kept_;  // empty while a run uses it
  std::uint64_t runs_ = 0;
  bool running_ = false;
  Residuals residuals_;
  std::exception_ptr failure_;
};

// Finds graph operations by their number. Libraries of frameworks call the core through the C
// function table that functions() returns.
class GraphOpTable {
 public:
  GraphOpTable();
  GraphOpTable(const GraphOpTable&) = delete;
  std::int64_t add(std::shared_ptr<GraphOp> graph_op);
  void remove(std::int64_t id);
  std::shared_ptr<GraphOp> find(std::int64_t id) const;  // throws Error(invalid)
  const ringcomm_graph_ops* functions() const { return &functions_; }

 private:
  static void run(void* self, std::int64_t id, const ringcomm_run* run);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<GraphOp>> ops_;
  std::vector<std::int64_t> free_;
  ringcomm_graph_ops functions_;
};

}  // namespace ringcomm

// Implements GraphOp and GraphOpTable: a run prepares requests, submits them, waits, and passes
// results to the framework.
#include "graph_ops/graph_op.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/cuts.hpp"
#include "engine/agreement/signature.hpp"
#include "engine/operation_state.hpp"
#include "engine/worker/worker.hpp"

namespace ringcomm {

namespace {

using Shape = std::vector<std::int64_t>;

std::span<const std::int64_t> shape_of(const ringcomm_array& array) {
  return {array.dims, static_cast<std::size_t>(array.rank)};
}

std::size_t product(std::span<const std::int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), std::size_t{1},
                         [](std::size_t product, std::int64_t n) { return product * static_cast<std::size_t>(n); });
}

std::vector<std::size_t> counts_of(const ringcomm_run& run) {
  std::vector<std::size_t> counts;
  for (int i = 0; i < run.inputs; ++i) counts.push_back(product(shape_of(run.input[i])));
  return counts;
}

// Returns the shape as Python writes a tuple, so that error messages are the same for all
// frameworks.
std::string text_of_shape(std::span<const std::int64_t> dims) {
  std::string text = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + (dims.size() == 1 ? ",)" : ")");
}

std::size_t rows_of(const ringcomm_array& array) {  // no dimensions: one row
  return array.rank == 0 ? 1 : static_cast<std::size_t>(array.dims[0]);
}

std::span<const std::int64_t> row_shape(const ringcomm_array& array) {
  return shape_of(array).subspan(array.rank == 0 ? 0 : 1);
}

// Returns the number of rows to send to each rank, from the second input.
std::vector<std::size_t> splits_of(const ringcomm_array& given, std::size_t rows, int size) {
  const bool wide = given.dtype == static_cast<int>(DType::int64);
  if ((!wide && given.dtype != static_cast<int>(DType::int32)) || given.rank != 1)
    throw Error(ErrorKind::invalid, "alltoall: splits must be a vector of int32 or int64");
  std::vector<std::size_t> splits;
  std::string text;
  bool valid = given.dims[0] == size;
  for (std::int64_t i = 0; i < given.dims[0]; ++i) {
    const std::int64_t n =
        wide ? static_cast<const std::int64_t*>(given.data)[i] : static_cast<const std::int32_t*>(given.data)[i];
    valid &= n >= 0;
    splits.push_back(static_cast<std::size_t>(n));
    text += (i ? ", " : "") + std::to_string(n);
  }
  if (!valid || total(splits) > rows) {
    throw Error(ErrorKind::invalid, "splits must be " + std::to_string(size) +
                                        " row counts that add up to at most the first dimension, " +
                                        std::to_string(rows) + "; got [" + text + "]");
  }
  return splits;
}

// Returns whether the size of the result is unknown until ranks have agreed on the operation.
bool is_found(Collective collective) { return has_rows_per_rank(collective); }

void release_memory(void* owner) { delete static_cast<std::shared_ptr<std::byte[]>*>(owner); }

void failed_to_allocate() { throw Error(ErrorKind::internal, "the framework could not allocate memory for a result"); }

}  // namespace

bool GraphOp::Prepared::fits(const SetLink::Live& live, const ringcomm_run& run, std::size_t count) const {
  if (epoch != live.epoch || group.size() != count) return false;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {  // a barrier has none
    const ringcomm_array& array = run.input[i];
    if (dtypes[i] != array.dtype || !std::ranges::equal(shapes[i], shape_of(array))) return false;
  }
  return true;
}

NamedRequest GraphOp::request_of(const SetLink::Live& live, const ringcomm_run& run, std::size_t index,
                                 const std::vector<std::uint64_t>& wires) {
  NamedRequest named;
  Call& call = named.call = spec_.call;
  call.name = spec_.names[index];
  if (call.collective == Collective::barrier) return named;
  const ringcomm_array& array = run.input[index];
  call.dtype = static_cast<DType>(array.dtype);
  if (!wires.empty()) call.wire = Wire::of(wires[index]);
  call.count = product(shape_of(array));
  if (call.wire && spec_.keeps) {
    call.feedback = residuals_.feedback();
    call.tensor = index;
  }
  std::span<const std::int64_t> compared = shape_of(array);
  if (has_blocks(call.collective)) {
    const std::string what(name_of(call.collective));
    if (array.rank == 0 && call.collective != Collective::allgather)
      throw Error(ErrorKind::invalid, what + " needs an array with at least one dimension");
    named.row = product(row_shape(array));
    named.rows = rows_of(array);
    if (has_rows_per_rank(call.collective) && !spec_.even) compared = row_shape(array);
    if (spec_.splits) {
      named.splits = splits_of(run.input[index + 1], named.rows, live.size);
      named.rows = total(named.splits);
      call.count = named.rows * named.row;
    } else if (call.collective == Collective::alltoall && named.rows % static_cast<std::size_t>(live.size) != 0) {
      throw Error(ErrorKind::invalid, "alltoall without splits needs a first dimension that is a multiple of the " +
                                          std::to_string(live.size) + " ranks; it is " + std::to_string(named.rows));
    }
  }
  call.shape_text = text_of_shape(compared);
  call.shape = Hash().add(call.shape_text).value();
  return named;
}

Residuals& GraphOp::residuals() {
  if (!running_) return residuals_;
  throw Error(ErrorKind::invalid,
              "'" + spec_.names[0] + "' is running: its residual can be accessed only between runs");
}

std::vector<float> GraphOp::residual(std::size_t tensor) {
  const std::lock_guard lock(mutex_);
  return residuals().residual(tensor);
}

void GraphOp::set_residual(std::size_t tensor, std::vector<float> values) {
  const std::lock_guard lock(mutex_);
  residuals().set_residual(tensor, std::move(values));
}

GraphOp::Prepared GraphOp::prepared_for(const SetLink::Live& live, const ringcomm_run& run) {
  const std::size_t count = spec_.names.size();
  Prepared prepared;
  const std::vector<std::uint64_t>* wires;
  {
    const std::lock_guard lock(mutex_);
    prepared = std::exchange(kept_, {});
    wires = runs_++ < spec_.first_runs ? &spec_.first_wires : &spec_.wires;
    running_ = true;
    if (spec_.keeps) residuals_.begin(counts_of(run));
  }
  if (!spec_.splits && prepared.wires == wires &&
      prepared.fits(live, run, count)) {  // splits are values: they may differ between runs
    Engine::renew_group(prepared.group);
    return prepared;
  }
  prepared = {.epoch = live.epoch, .dtypes = {}, .shapes = {}, .group = {}, .wires = wires};
  std::vector<NamedRequest> requests;
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back(request_of(live, run, i, *wires));
    if (run.inputs == 0) continue;
    prepared.dtypes.push_back(run.input[i].dtype);
    const auto dims = shape_of(run.input[i]);
    prepared.shapes.emplace_back(dims.begin(), dims.end());
  }
  prepared.group = Engine::prepare_group(std::move(requests));
  return prepared;
}

// Sets the addresses of inputs, and of results with known shapes.
void GraphOp::place_results(const SetLink::Live& live, const ringcomm_run& run, Prepared& prepared) const {
  const Collective collective = spec_.call.collective;
  if (collective == Collective::barrier) return;
  for (std::size_t i = 0; i < prepared.group.size(); ++i) {
    const ringcomm_array& array = run.input[i];
    Call& call = prepared.group[i]->request.call;
    call.input = array.data;
    call.output = nullptr;
    if (is_found(collective)) continue;
    const auto given = shape_of(array);
    Shape shape(given.begin(), given.end());
    const bool cut = collective == Collective::reducescatter;
    if (cut) {
      const auto part = split(rows_of(array), static_cast<std::size_t>(live.size), static_cast<std::size_t>(live.rank));
      shape[0] = static_cast<std::int64_t>(part.count);
    }
    const int index = static_cast<int>(i);
    call.output = run.allocate(run.context, index, cut ? -1 : index, array.dtype, shape.data(), array.rank);
    if (call.output == nullptr) failed_to_allocate();
  }
}

void GraphOp::give_results(const ringcomm_run& run, const Prepared& prepared) const {
  if (!is_found(spec_.call.collective)) return;
  for (std::size_t i = 0; i < prepared.group.size(); ++i) {
    const OperationState& pending = *prepared.group[i];
    const ringcomm_array& array = run.input[i];
    Shape shape{static_cast<std::int64_t>(total(pending.counts))};
    const auto row = row_shape(array);
    shape.insert(shape.end(), row.begin(), row.end());
    const int index = static_cast<int>(i), rank = static_cast<int>(shape.size());
    if (pending.output_bytes == 0) {
      if (!run.allocate(run.context, index, -1, array.dtype, shape.data(), rank)) failed_to_allocate();
      continue;
    }
    auto* owner = new std::shared_ptr<std::byte[]>(pending.output);
    if (!run.adopt(run.context, index, array.dtype, shape.data(), rank, pending.output.get(), pending.output_bytes,
                   release_memory, owner))
      failed_to_allocate();
  }
  if (!spec_.splits) return;
  const std::vector<std::size_t>& received = prepared.group[0]->counts;
  const auto ranks = static_cast<std::int64_t>(received.size());
  auto* out = static_cast<std::int32_t*>(run.allocate(run.context, 1, -1, static_cast<int>(DType::int32), &ranks, 1));
  if (out == nullptr) failed_to_allocate();
  std::ranges::transform(received, out, [](std::size_t n) { return static_cast<std::int32_t>(n); });
}

void GraphOp::run_in(const SetLink::Live& live, const ringcomm_run& run) {
  Prepared prepared = prepared_for(live, run);
  place_results(live, run, prepared);
  live.engine->submit_group(live.set, prepared.group);
  // Waits for all operations, even if one has failed, because they use the arrays until they end.
  for (const OperationStatePtr& pending : prepared.group) wait_for(*pending, *live.worker, -1, nullptr);
  for (const OperationStatePtr& pending : prepared.group) {
    if (pending->error()) std::rethrow_exception(pending->error());
  }
  give_results(run, prepared);
  for (const OperationStatePtr& pending : prepared.group) pending->output.reset();
  const std::lock_guard lock(mutex_);
  kept_ = std::move(prepared);
  running_ = false;
}

void GraphOp::look_in(const ringcomm_run& run) {
  const SetLink::Live live = set_->live();  // throws if there is no session
  if (const std::uint64_t number = set_->due(spec_.names[0], spec_.every)) spec_.look(number, run);
  const std::int64_t one = 1;
  auto* byte = static_cast<std::byte*>(run.allocate(run.context, 0, -1, static_cast<int>(DType::uint8), &one, 1));
  if (byte == nullptr) failed_to_allocate();
  *byte = std::byte{0};
}

void GraphOp::run(const ringcomm_run& run) {
  try {
    if (spec_.look) return look_in(run);
    const std::size_t inputs = spec_.call.collective == Collective::barrier ? 0 : spec_.names.size() + spec_.splits;
    if (static_cast<std::size_t>(run.inputs) != inputs)
      throw Error(ErrorKind::invalid,
                  "this operation takes " + std::to_string(inputs) + " tensors, but got " + std::to_string(run.inputs));
    run_in(set_->live(), run);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    running_ = false;
    if (residuals_.feedback()) residuals_.feedback()->undo_all();
    throw;
  }
}

std::exception_ptr GraphOp::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, nullptr);
}

// ---- the table

GraphOpTable::GraphOpTable() : functions_{RINGCOMM_GRAPH_OPS_VERSION, this, run} {}

std::int64_t GraphOpTable::add(std::shared_ptr<GraphOp> graph_op) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    ops_.push_back(std::move(graph_op));
    return static_cast<std::int64_t>(ops_.size()) - 1;
  }
  const std::int64_t id = free_.back();
  free_.pop_back();
  ops_[static_cast<std::size_t>(id)] = std::move(graph_op);
  return id;
}

void GraphOpTable::remove(std::int64_t id) {
  const std::shared_ptr<GraphOp> graph_op = find(id);
  const std::lock_guard lock(mutex_);
  ops_[static_cast<std::size_t>(id)].reset();
  free_.push_back(id);
}

std::shared_ptr<GraphOp> GraphOpTable::find(std::int64_t id) const {
  const std::lock_guard lock(mutex_);
  if (id >= 0 && static_cast<std::size_t>(id) < ops_.size() && ops_[static_cast<std::size_t>(id)])
    return ops_[static_cast<std::size_t>(id)];
  throw Error(ErrorKind::invalid,
              "this graph contains ringcomm operations of another process: build it again in this process (or save the "
              "model with an optimizer that is not distributed)");
}

void GraphOpTable::run(void* self, std::int64_t id, const ringcomm_run* run) {
  try {
    static_cast<const GraphOpTable*>(self)->find(id)->run(*run);
  } catch (const Error& error) {
    run->fail(run->context, static_cast<int>(error.kind()), error.what());
  } catch (const std::exception& error) {
    run->fail(run->context, static_cast<int>(ErrorKind::internal), error.what());
  }
}

}  // namespace ringcomm

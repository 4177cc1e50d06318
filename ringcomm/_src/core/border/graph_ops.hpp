// Functions of graph operations for _graph_ops.pxi, with types that Cython can pass.
#pragma once

#include <algorithm>
#include <string>

#include "base/aligned_bytes.hpp"
#include "border/errors.hpp"
#include "graph_ops/graph_op.hpp"

namespace ringcomm_border {
using namespace ringcomm;
// Returns the table, which is never destroyed: frameworks' threads may run graphs at process exit.
inline GraphOpTable& graph_ops() {
  static auto& table = *new GraphOpTable;
  return table;
}
inline std::uintptr_t graph_op_functions() { return reinterpret_cast<std::uintptr_t>(graph_ops().functions()); }

// Inputs and results of a run from Python, without a framework's library. Results are in memory of
// the core, 64-byte aligned.
struct Given {
  std::uintptr_t data;
  int dtype;
  std::vector<std::int64_t> dims;
};
struct Result {
  std::shared_ptr<std::byte[]> memory;
  std::size_t bytes;
  int dtype;
  std::vector<std::int64_t> dims;
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory.get()); }
};
inline Result& result_at(void* context, int index) {
  auto& results = *static_cast<std::vector<Result>*>(context);
  if (results.size() <= static_cast<std::size_t>(index)) results.resize(static_cast<std::size_t>(index) + 1);
  return results[static_cast<std::size_t>(index)];
}
inline void* allocate_result(void* context, int index, int, int dtype, const std::int64_t* dims, int rank) {
  Result& result = result_at(context, index);
  result.dtype = dtype;
  result.dims.assign(dims, dims + rank);
  result.bytes = size_of(static_cast<DType>(dtype));
  for (const std::int64_t n : result.dims) result.bytes *= static_cast<std::size_t>(n);
  result.memory = aligned_bytes(result.bytes);
  return result.memory.get();
}
inline int adopt_result(void* context, int index, int dtype, const std::int64_t* dims, int rank, void* data,
                        std::size_t bytes, void (*release)(void*), void* owner) {
  std::shared_ptr<std::byte[]> memory(static_cast<std::byte*>(data), [=](std::byte*) { release(owner); });
  result_at(context, index) = {std::move(memory), bytes, dtype, {dims, dims + rank}};
  return 1;
}
inline std::vector<Result> run_graph_op(GraphOp& graph_op, const std::vector<Given>& given) {
  std::vector<ringcomm_array> inputs;
  for (const Given& array : given) {
    inputs.push_back({reinterpret_cast<const void*>(array.data), array.dims.data(), static_cast<int>(array.dims.size()),
                      array.dtype});
  }
  std::vector<Result> results;
  graph_op.run({&results, static_cast<int>(inputs.size()), inputs.data(), allocate_result, adopt_result, nullptr});
  return results;
}
// Calls a Python function with the number of the run and [(address, dtype, shape)], from any
// thread. A Python exception becomes an Error of the kind of its type, or internal.
inline void call_look(PyObject* function, std::uint64_t number, const ringcomm_run& run) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* arrays = PyList_New(run.inputs);
  for (int i = 0; arrays && i < run.inputs; ++i) {
    const ringcomm_array& array = run.input[i];
    PyObject* shape = PyTuple_New(array.rank);
    for (int k = 0; shape && k < array.rank; ++k) PyTuple_SetItem(shape, k, PyLong_FromLongLong(array.dims[k]));
    const auto address = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(array.data));
    PyObject* item = shape ? Py_BuildValue("(KiN)", address, array.dtype, shape) : nullptr;
    if (!item) Py_CLEAR(arrays);
    if (arrays) PyList_SetItem(arrays, i, item);
  }
  PyObject* result =
      arrays ? PyObject_CallFunction(function, "KN", static_cast<unsigned long long>(number), arrays) : nullptr;
  if (result) {
    Py_DECREF(result);
    PyGILState_Release(state);
    return;
  }
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const auto& types = error_types();
  const auto found = std::find(types.begin(), types.end(), type);
  const auto kind = found == types.end() ? ErrorKind::internal : static_cast<ErrorKind>(found - types.begin());
  PyObject* text = value ? PyObject_Str(value) : nullptr;
  const char* utf8 = text ? PyUnicode_AsUTF8AndSize(text, nullptr) : nullptr;
  const std::string what = utf8 ? utf8 : "the comparison of replicas failed";
  PyErr_Clear();
  for (PyObject* item : {type, value, trace, text}) Py_XDECREF(item);
  PyGILState_Release(state);
  throw Error(kind, what);
}
inline void set_look(GraphOpSpec& spec, PyObject* function) {  // not released: graphs are never freed
  Py_INCREF(function);
  spec.look = [function](std::uint64_t number, const ringcomm_run& run) { call_look(function, number, run); };
}
inline void raise_failure(GraphOp& graph_op) { rethrow(graph_op.take_failure()); }
}  // namespace ringcomm_border

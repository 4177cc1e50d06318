// Conversion of the core's typed errors to Python exceptions (_errors.pxi). Cython calls
// translate() for every exception that leaves the core.
#pragma once

#include <Python.h>

#include <exception>
#include <new>
#include <vector>

#include "base/error.hpp"

namespace ringcomm_border {
inline std::vector<PyObject*>& error_types() {
  static std::vector<PyObject*> types;
  return types;
}
inline void translate() {  // Cython calls it with the GIL, inside catch (...)
  try {
    throw;
  } catch (const ringcomm::Error& error) {
    if (error.kind() == ringcomm::ErrorKind::interrupted) {
      if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
      return;
    }
    const auto index = static_cast<std::size_t>(error.kind());
    PyObject* type = index < error_types().size() ? error_types()[index] : PyExc_RuntimeError;
    PyObject* ranks = PyTuple_New(static_cast<Py_ssize_t>(error.ranks().size()));
    if (!ranks) return;
    for (std::size_t i = 0; i < error.ranks().size(); ++i) {
      PyTuple_SetItem(ranks, static_cast<Py_ssize_t>(i), PyLong_FromLong(error.ranks()[i]));
    }
    PyObject* value = index < error_types().size() && PyObject_HasAttrString(type, "takes_ranks")
                          ? PyObject_CallFunction(type, "sO", error.what(), ranks)
                          : PyObject_CallFunction(type, "s", error.what());
    Py_DECREF(ranks);
    if (!value) return;
    PyErr_SetObject(type, value);
    Py_DECREF(value);
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}
inline void add_error_type(PyObject* type) {
  Py_INCREF(type);
  error_types().push_back(type);
}
inline void clear_error_types() { error_types().clear(); }
inline void rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}
inline bool interrupted() {  // called from a thread without the GIL
  PyGILState_STATE state = PyGILState_Ensure();
  const bool stop = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return stop;
}
}  // namespace ringcomm_border

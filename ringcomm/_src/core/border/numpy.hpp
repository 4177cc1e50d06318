// Access to the struct of NumPy arrays. Uses only macros of NumPy's headers that read the array
// itself: functions of NumPy's table (for example PyArray_SIZE) need _import_array() first.
#pragma once

#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

namespace ringcomm_border {
constexpr int kPlain = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;

inline PyArrayObject* array_of(PyObject* array) { return reinterpret_cast<PyArrayObject*>(array); }
inline PyObject* dtype_of(PyObject* array) { return reinterpret_cast<PyObject*>(PyArray_DESCR(array_of(array))); }
inline char* data_of(PyObject* array) {  // null for None
  return array == Py_None ? nullptr : static_cast<char*>(PyArray_DATA(array_of(array)));
}
}  // namespace ringcomm_border

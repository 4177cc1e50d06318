// Calls of methods without arguments, for keys of arrays (_array_keys.pxi), by the fastest function
// that the ABI has.
#pragma once

#include <Python.h>

namespace ringcomm_border {
inline PyObject* call_method(PyObject* object, PyObject* name) {
#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030C0000
  return PyObject_CallMethodObjArgs(object, name, nullptr);
#else
  return PyObject_VectorcallMethod(name, &object, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
#endif
}
}  // namespace ringcomm_border

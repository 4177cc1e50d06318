# Plain calls, where a tenth of a microsecond counts: NumPy arrays read by their heads, compared with those of earlier calls,
# of which everything else is remembered. One mechanism for all ordered collectives.
from cpython.pycapsule cimport PyCapsule_GetPointer

cdef extern from "border/plain.hpp":
    cdef struct ArrayInterface "ringcomm_border::ArrayInterface":
        int flags
        void* data
    ctypedef struct PyObject
    ctypedef struct PyTypeObject
    cdef cppclass Held "ringcomm_border::Held":
        void hold(PyObject*)
        PyObject* get()
    cdef cppclass ArrayKind "ringcomm_border::ArrayKind":
        bint fits(PyObject*, bint)
        PyObject* dtype()
        void learn(PyObject*, const vector[Py_ssize_t]&)
    cdef cppclass CallSite "ringcomm_border::CallSite":
        ArrayKind given, result
        Held shape
        CCallSpan span
        CCall call, exchange
        bint exchanges
        vector[int64_t] told, sent, expected, received
        uint64_t numbers
        uint64_t expectation()
        bint takes(int, double, double)
    cdef cppclass PlainCalls "ringcomm_border::PlainCalls":
        CallSite* find(int, PyObject*, const vector[int64_t]&)
        CallSite* renew(int)
    char* data_of "ringcomm_border::data_of"(PyObject*)
    bint c_plain_array "ringcomm_border::plain_array"(PyObject*, PyTypeObject*)
    bint c_head_is "ringcomm_border::head_is"(PyObject*, uintptr_t, int, PyObject*, int)

cdef bint heads_are_known = False
cdef object array_type = None, new_array = None


def array_memory(array: object) -> tuple[int, int]:
    """Several times faster than `array.ctypes.data`: it is on the path of every call."""
    cdef object capsule = array.__array_struct__
    cdef ArrayInterface* it = <ArrayInterface*>PyCapsule_GetPointer(capsule, NULL)
    return <uintptr_t>it.data, it.flags


def know_heads(probe: Any, empty: Callable[..., Any]) -> bool:
    """Plain calls from now on, if a NumPy array's head holds what NumPy's interface says of it.

    `empty` is numpy.empty.
    """
    global heads_are_known, array_type, new_array
    address, flags = array_memory(probe)
    array_type, new_array = type(probe), empty
    heads_are_known = c_head_is(<PyObject*>probe, address, probe.ndim, <PyObject*>probe.dtype, flags)
    return heads_are_known

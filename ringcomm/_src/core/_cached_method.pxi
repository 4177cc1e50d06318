# Methods of communicators that run a cached call without Python code. If the cache has no matching
# call, the method's Python function runs (the general path). A frame of a Python function takes 60
# to 100 ns; the shortest calls take 300.
from types import MethodType

cdef extern from "Python.h":
    ctypedef object (*vectorcallfunc)(object, PyObject* const*, size_t, PyObject*)
    size_t PyVectorcall_NARGS(size_t)
    object PyObject_Vectorcall(object, PyObject* const*, size_t, PyObject*)

cdef extern from "border/parameters.hpp":
    cdef cppclass Arguments "ringcomm_border::Arguments":
        PyObject* x
        PyObject* out
        PyObject* root
        PyObject* op
        PyObject* prescale_factor
        PyObject* postscale_factor
        PyObject* wire
        PyObject* rows
    cdef cppclass Parameters "ringcomm_border::Parameters":
        void add(PyObject*, string, PyObject*)
        bint sort(PyObject* const*, size_t, PyObject*, Arguments&)
    void use_vectorcall "ringcomm_border::use_vectorcall"(PyTypeObject*, Py_ssize_t)


INTO_OUT: int = -1  # last number of the cache key of a call that has `out` but no `x` (a scatter)


cdef class CachedCalls:
    """Base class of communicators: what their cached methods use."""
    cdef public Channel _call_cache  # channel that runs the calls; None: no call is cached
    cdef public list _exchanged  # received numbers, if a cached call has exchanged others than before


cdef class CachedMethod:
    """A method of a class derived from CachedCalls that first looks its call up in the cache.

    Parameters of `general` that are named x, out, root, op, prescale_factor, postscale_factor, wire
    or rows mean what they mean in ringcomm.Communicator. A call is not cached if any other
    parameter differs from its default. `key`: first number of the cache key; the root follows. If
    the cached call's exchange gives other numbers, `general` finds them in `_exchanged`.
    """
    cdef vectorcallfunc vectorcall
    cdef Parameters parameters
    cdef object general, op_type, as_op, wire_number
    cdef int collective, key
    cdef bint needs_x
    cdef dict __dict__  # for functools.update_wrapper
    cdef object __weakref__

    def __init__(self, general: Callable[..., Any], int collective, key: int | None = None):
        from ringcomm._src.base import ops
        self.vectorcall = call_cached_method
        self.general, self.collective, self.key = general, collective, -1 if key is None else key
        self.op_type, self.as_op, self.wire_number = ops.Op, ops.as_op, ops.wire_number
        cdef tuple names = general.__code__.co_varnames[1:general.__code__.co_argcount]
        cdef tuple defaults = general.__defaults__
        self.needs_x = "x" in names
        for name, default in zip(names, (None,) * (len(names) - len(defaults)) + defaults):
            self.parameters.add(<PyObject*>name, name.encode(), <PyObject*>default)

    def __repr__(self): return repr(self.general)

    def __reduce__(self) -> str: return self.__qualname__

    def __call__(self, *args: Any, **kwargs: Any) -> Any: return self.general(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None) -> Any:
        return self if instance is None else MethodType(self, instance)

    cdef object try_cached(self, Channel channel, const Arguments& given):
        """Runs a call from the cache, with the algorithm that the core chooses.

        Returns the result, a new array if `out` is not given; None if this rank has no result. If
        the cache has no matching call, returns NotImplemented without any effect. If the exchange
        of numbers before the call gives other numbers than the cached ones, returns the received
        numbers as a list without running the call.
        """
        cdef vector[int64_t] key
        cdef int64_t number, root = 0, op_code = 1
        cdef double pre = 1, post = 1
        cdef object array = argument(given.x), out = argument(given.out), op
        if given.x == NULL and self.needs_x:
            return NotImplemented  # the general path raises the error
        if given.root != NULL and (not is_integer(<object>given.root, &root) or root != <int>root):
            return NotImplemented
        if given.op != NULL:
            op = <object>given.op
            if type(op) is not self.op_type:
                op = self.as_op(op)
            if not is_integer(op, &op_code):  # a function as op
                return NotImplemented
        if given.prescale_factor != NULL and not is_number(<object>given.prescale_factor, &pre):
            return NotImplemented
        if given.postscale_factor != NULL and not is_number(<object>given.postscale_factor, &post):
            return NotImplemented
        if self.key >= 0:
            key.push_back(self.key)
            key.push_back(root)
            root = 0
        if argument(given.wire) is not None:
            key.push_back(self.wire_number(<object>given.wire))
        if argument(given.rows) is not None:
            rows = <object>given.rows
            if type(rows) is not list and type(rows) is not tuple or not rows:
                return NotImplemented
            for value in rows:
                if not is_integer(value, &number):
                    return NotImplemented
                key.push_back(number)
        if array is None and out is not None:
            array = out
            key.push_back(INTO_OUT)
        return channel.run_cached(self.collective, array, out, <int>root, key, op_code, pre, post)


cdef inline object argument(PyObject* given):
    return None if given == NULL else <object>given


cdef object call_cached_method(object callable, PyObject* const* args, size_t nargsf, PyObject* keywords):
    cdef CachedMethod method = <CachedMethod>callable
    cdef size_t count = PyVectorcall_NARGS(nargsf)
    cdef CachedCalls calls
    cdef Arguments given
    cdef object result = NotImplemented
    if count > 0 and isinstance(<object>args[0], CachedCalls):
        calls = <CachedCalls>args[0]
        if calls._call_cache is not None and method.parameters.sort(args + 1, count - 1, keywords, given):
            result = method.try_cached(calls._call_cache, given)
            if result is not NotImplemented and type(result) is not list:
                return result
        calls._exchanged = result if type(result) is list else None
    return PyObject_Vectorcall(method.general, args, nargsf, keywords)


cdef CachedMethod example = CachedMethod.__new__(CachedMethod)
use_vectorcall(<PyTypeObject*>CachedMethod, <char*>&example.vectorcall - <char*><PyObject*>example)

# Keys that decide whether a cached in-place request fits a new array. The check is on the path of
# every repeated named operation, so it costs as little as possible.
from cpython.exc cimport PyErr_Clear
from cpython.pycapsule cimport PyCapsule_GetPointer

cdef extern from "border/array_keys.hpp":
    object call_method "ringcomm_border::call_method"(object, object)


@auto_pickle(True)
cdef class ArrayKey:
    """The conditions under which an in-place request for one array also fits another array.

    The class is `cls`. Each attribute in `identical` is the identical object, and each in `equal`
    is equal. Each method in `true_methods` returns true, and each in `false_methods` returns false.
    The method `address` returns the array's address.
    """
    cdef object cls, address
    cdef tuple identical, equal, true_methods, false_methods

    def __init__(self, cls: type, dict identical, dict equal, tuple true_methods, tuple false_methods, str address):
        self.cls, self.address, self.true_methods, self.false_methods = cls, address, true_methods, false_methods
        self.identical, self.equal = tuple(identical.items()), tuple(equal.items())

    cpdef Py_ssize_t address_if_match(self, array: Any) except? -2:
        """Returns the address of `array`; -1 if `array` does not match."""
        cdef tuple expected
        if type(array) is not self.cls:
            return -1
        for expected in self.identical:
            if getattr(array, expected[0]) is not expected[1]:
                return -1
        for expected in self.equal:
            if getattr(array, expected[0]) != expected[1]:
                return -1
        for method in self.true_methods:
            if not call_method(array, method):
                return -1
        for method in self.false_methods:
            if call_method(array, method):
                return -1
        return call_method(array, self.address)


cdef enum: DLPACK_CPU = 1


cdef struct DlpackTensor:
    void* data
    int32_t device_type, device
    int32_t ndim
    uint8_t code, bits
    uint16_t lanes
    int64_t* shape
    int64_t* strides  # may be null: C-contiguous
    uint64_t offset


cdef struct DlpackExchange:  # version 1 of DLPack's table of C functions
    uint32_t major, minor
    void* older
    void* allocate
    void* managed_of
    void* object_of
    int (*tensor_of)(void* array, DlpackTensor* tensor) noexcept
    void* stream


cdef class DlpackKey(ArrayKey):
    """A key for C-contiguous host arrays whose class has DLPack's table of functions."""
    cdef int (*tensor_of)(void* array, DlpackTensor* tensor) noexcept
    cdef uint8_t code, bits
    cdef vector[int64_t] shape

    def __init__(self, array: Any, tuple false_methods):
        super().__init__(type(array), {}, {}, (), false_methods, "")
        cdef DlpackExchange* exchange = <DlpackExchange*>PyCapsule_GetPointer(
            array.__dlpack_c_exchange_api__, "dlpack_exchange_api")
        if exchange.major != 1 or not exchange.tensor_of:
            raise BufferError(f"version {exchange.major} of DLPack is not supported")
        self.tensor_of = exchange.tensor_of
        cdef DlpackTensor tensor
        if self.tensor_of(<void*>array, &tensor) != 0:
            PyErr_Clear()
            raise BufferError("DLPack cannot describe the array")
        self.code, self.bits = tensor.code, tensor.bits
        self.shape.assign(tensor.shape, tensor.shape + tensor.ndim)

    cdef bint fits(self, const DlpackTensor& tensor):
        cdef int64_t stride = 1
        if (tensor.code != self.code or tensor.bits != self.bits or tensor.device_type != DLPACK_CPU or
                tensor.ndim != <int>self.shape.size()):
            return False
        for i in range(tensor.ndim - 1, -1, -1):
            if tensor.shape[i] != self.shape[i] or (tensor.strides and tensor.shape[i] > 1 and tensor.strides[i] != stride):
                return False
            stride *= max(tensor.shape[i], 1)
        return True

    cpdef Py_ssize_t address_if_match(self, array) except? -2:
        cdef DlpackTensor tensor
        if type(array) is not self.cls:
            return -1
        if self.tensor_of(<void*>array, &tensor) != 0:
            PyErr_Clear()
            return -1
        if not self.fits(tensor):
            return -1
        for method in self.false_methods:
            if call_method(array, method):
                return -1
        return <Py_ssize_t>tensor.data + <Py_ssize_t>tensor.offset


cdef class NdarrayKey(ArrayKey):
    """A key for plain NumPy arrays, compared by the fields of the array's struct."""
    cdef ArrayKind kind

    def __init__(self, array):
        self.kind.learn(<PyObject*>array, array.shape)

    cpdef Py_ssize_t address_if_match(self, array) except? -2:
        return <Py_ssize_t>data_of(<PyObject*>array) if self.kind.fits(<PyObject*>array, True) else -1


def ndarray_key(array: Any) -> ArrayKey | None:
    """Returns a key for a NumPy array; None if `array` is not a NumPy array or not contiguous."""
    return NdarrayKey(array) if c_plain_array(<PyObject*>array, <PyTypeObject*>array_type) else None

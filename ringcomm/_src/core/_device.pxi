# GPUs: copies, stream order, and memory. The driver is loaded for the first array of a GPU.
cdef extern from "border/device.hpp" nogil:
    ctypedef void* CStream "ringcomm::CuStream"
    cdef cppclass CDevice "ringcomm::Device":
        uintptr_t allocate(size_t) except +translate
        void free(uintptr_t)
    CDevice& c_device "ringcomm::Device::get"(int) except +translate
    int c_open_devices "ringcomm::Device::open"(const string&, const string&) except +translate
    void c_give_kernels "ringcomm::Device::give_kernels"(const string&, string)
    cdef cppclass CDeviceLocation "ringcomm::DeviceLocation":
        void hold(CStream) except +translate
        void wait() except +translate
        void join(CStream) except +translate
    shared_ptr[CDeviceLocation] c_device_location "ringcomm_border::device_location"(int, vector[uintptr_t], cbool) except +translate
    cbool c_landed "ringcomm_border::landed"(const shared_ptr[CDeviceLocation]&) except +translate
    void c_device_copy "ringcomm_border::device_copy"(int, uintptr_t, uintptr_t, size_t, uintptr_t, cbool) except +translate
    void c_device_arrange "ringcomm_border::device_arrange"(int, uintptr_t, const vector[int64_t]&, uintptr_t, const vector[int64_t]&, const vector[uint64_t]&, unsigned, uintptr_t) except +translate
    void c_device_pack "ringcomm_border::device_pack"(int, const vector[uintptr_t]&, const vector[uintptr_t]&, const vector[size_t]&, int, uintptr_t) except +translate
    int c_device_of "ringcomm_border::device_of"(uintptr_t) except +translate
    cbool c_capturing "ringcomm_border::capturing"(int, uintptr_t) except +translate


def open_devices(str library not None, str nccl not None) -> int:
    """Loads CUDA's driver once; returns the number of GPUs. ValueError: there is no driver."""
    cdef string path = library.encode(), nccl_path = nccl.encode()
    cdef int count
    with nogil:
        count = c_open_devices(path, nccl_path)
    return count


def give_kernels(str module not None, bytes image not None) -> None:
    """Sets the PTX of a module; must be called before any array of a GPU is used."""
    c_give_kernels(module.encode(), image)


def device_copy(int device, uintptr_t to, uintptr_t source, size_t nbytes, uintptr_t stream, bint wait) -> None:
    """Copies between any two addresses, in stream order. `wait`: blocks until the copy is done."""
    with nogil:
        c_device_copy(device, to, source, nbytes, stream, wait)


def device_arrange(
        int device, uintptr_t to, to_strides: Sequence[int], uintptr_t source, strides: Sequence[int],
        shape: Sequence[int], unsigned size, uintptr_t stream) -> None:
    """Copies elements of `size` bytes between arrays with strides in bytes, in stream order."""
    cdef vector[int64_t] c_to_strides = to_strides, c_strides = strides
    cdef vector[uint64_t] lengths = shape
    with nogil:
        c_device_arrange(device, to, c_to_strides, source, c_strides, lengths, size, stream)


def device_pack(
        int device, sources: Sequence[int], destinations: Sequence[int], counts: Sequence[int], int dtype,
        uintptr_t stream) -> None:
    """Copies arrays of a dtype (index in DTYPES) in stream order, up to 128 in one kernel."""
    c_device_pack(device, sources, destinations, counts, dtype, stream)


def device_of(uintptr_t address) -> int: return c_device_of(address)  # the GPU that has this memory; -1: none


def device_capturing(int device, uintptr_t stream) -> bool:
    """Returns True if the stream is being captured into a CUDA graph."""
    return bool(c_capturing(device, stream))


cdef class DeviceOrder:
    """The order of a call and CUDA streams.

    The call's buffers are ready after the work that the streams contain when this object is made.
    """
    cdef shared_ptr[CDeviceLocation] it

    def __init__(self, int device, streams: Sequence[int], bint host_output=False):
        self.it = c_device_location(device, streams, host_output)

    def join(self, uintptr_t stream) -> None:
        """Makes later work on the stream wait for the result of the ended call; does not block."""
        self.it.get().join(<CStream>stream)
    def hold(self, uintptr_t stream) -> None:
        """Makes later work on the stream wait until the buffers are ready; does not block."""
        self.it.get().hold(<CStream>stream)

    def wait(self) -> None:  # after the call has ended: blocks until its result is ready
        with nogil:
            self.it.get().wait()

    def over(self) -> bool:
        """Returns True if the result of the ended call is ready, and buffers may be freed."""
        return bool(c_landed(self.it))


cdef class DeviceMemory:
    """GPU memory, which is freed with this object."""
    cdef CDevice* it
    cdef readonly uintptr_t address
    cdef readonly size_t nbytes
    cdef readonly int device

    def __init__(self, int device, size_t nbytes):
        self.device, self.nbytes = device, nbytes
        try:
            self.it = &c_device(device)
            self.address = self.it.allocate(max(nbytes, 1))
        except MemoryError:
            raise MemoryError(f"GPU {device} cannot allocate {nbytes} bytes") from None

    def __dealloc__(self):
        if self.address != 0 and not in_child:
            with nogil:  # free() waits for the device, whose host functions may need the GIL
                self.it.free(self.address)

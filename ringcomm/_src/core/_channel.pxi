# Channels, which run ordered calls of communicators, and the calls from the call cache.
cdef extern from "border/channel.hpp":
    shared_ptr[CChannel] c_make_channel "ringcomm_border::make_channel"(shared_ptr[CTransport], vector[int], int, int, int,
                                                                        shared_ptr[CNode], int, CChannelConfig,
                                                                        shared_ptr[CWorker]) except +translate
    string c_why_broken "ringcomm_border::why_broken"(const CChannel&)
    string c_choose "ringcomm_border::choose"(CChannel&, CCall) except +translate
    int kSlots "ringcomm::kSlots"
    void c_run_messages "ringcomm_border::run_messages"(CChannel&, const CSchedule&, uintptr_t, size_t, size_t, size_t,
                                                        cbool (*)() noexcept nogil) except +translate nogil

cdef extern from "collectives/channel.hpp" namespace "ringcomm" nogil:
    cdef cppclass CChannel "ringcomm::Channel":
        int rank()
        void run(CCall, cbool (*)() noexcept nogil) except +translate
        void watch(shared_ptr[const CProcesses], map[int, int]) except +translate
        void leave()

cdef extern from "collectives/caller_run.hpp" namespace "ringcomm":
    cdef cppclass CCallerRun "ringcomm::CallerRun":
        pass

cdef extern from "collectives/adasum.hpp" namespace "ringcomm":
    cbool is_adasum(const CCall&)

cdef extern from "border/device.hpp" nogil:
    vector[string] c_device_route_statuses "ringcomm_border::device_route_statuses"(CChannel&) except +translate

cdef extern from "border/call_cache.hpp" namespace "ringcomm_border":
    cbool start_cached(optional[CCallerRun]&, CChannel&, CachedCall&, const char*, char*, int, int, double, double) except +translate
    void finish_cached(optional[CCallerRun]&, cbool (*)() noexcept nogil) except +translate nogil
    cbool run_exchange(CChannel&, CachedCall&, const char*, char*, int, int, double, double, cbool (*)() noexcept nogil) except +translate nogil

SLOTS: int = kSlots


cdef class Channel:
    """One ordered stream of collective calls (csrc/collectives/channel.hpp)."""
    cdef shared_ptr[CChannel] it
    cdef bint busy  # a thread is in a call
    cdef CallCache cache

    def __init__(
            self, Transport transport not None, peers: Sequence[int], int rank, int first_tag, int tag_count,
            node: Node | None, int slot, config: ChannelConfig, Worker worker=None):
        """`worker`: if it has no thread, calls run its pending work while they wait."""
        cdef shared_ptr[CWorker] helper
        if worker is not None:
            helper = worker.it
        self.it = c_make_channel(transport.it, peers, rank, first_tag, tag_count, node_of(node), slot, channel_config(config), helper)

    def choose(self, Request request not None) -> str:  # algorithm for the request's collective, dtype, op, count
        return c_choose(self.it.get()[0], request.it.call).decode()

    def run(self, Request request not None) -> None:
        """Runs a call. Ctrl-C raises KeyboardInterrupt and breaks the channel."""
        cdef CCall call = request.it.call
        self.enter()
        cdef CChannel* channel = self.it.get()
        try:
            with nogil:
                channel.run(move(call), interrupted)
        except:
            keep_until_done([], request.finish)
            raise
        finally:
            self.busy = False

    def run_messages(
            self, Schedule schedule not None, uintptr_t data, size_t nbytes, size_t segment, size_t window) -> None:
        """Runs the sends and receives of a schedule, in segments, for benchmarks; not a call."""
        with nogil:
            c_run_messages(self.it.get()[0], schedule.it, data, nbytes, segment, window, interrupted)

    cdef int enter(self) except -1:
        """Marks the channel busy; raises if it is. The GIL makes this atomic."""
        if self.busy:
            raise RuntimeError("another thread is in a call on this communicator; use one communicator per thread")
        self.busy = True
        return 0

    cdef object run_cached(
            self, int collective, object array, object out, int root, const vector[int64_t]& key, int64_t op, double pre, double post):
        """Implements CachedMethod.try_cached."""
        cdef CachedCall* cached = self.cache.find(collective, <PyObject*>array, key)
        if cached == NULL or not cached.takes(op, pre, post):
            return NotImplemented
        cdef CChannel* channel = self.it.get()
        cdef bint has_result = cached.has_result(root, channel.rank())
        if out is not None and has_result and not (
                cached.result.fits(<PyObject*>out, True) and
                cached.span.allows(data_of(<PyObject*>array), data_of(<PyObject*>out))):
            return NotImplemented
        self.enter()  # from here on no other thread uses the cache
        cdef cbool done
        cdef optional[CCallerRun] run
        cdef char* given
        cdef char* result
        try:
            if not has_result:
                out = array  # never written
            elif out is None and cached.shape.get() != NULL:
                out = new_array(<object>cached.shape.get(), <object>cached.given.dtype())
            given, result = data_of(<PyObject*>array), data_of(<PyObject*>out)
            if cached.exchanges:
                with nogil:
                    done = run_exchange(channel[0], cached[0], given, result, <int>op, root, pre, post, interrupted)
                if done:
                    return out
                if cached.received != cached.expected:
                    return cached.received  # converted to a list
            if not start_cached(run, channel[0], cached[0], given, result, <int>op, root, pre, post):
                with nogil:
                    finish_cached(run, interrupted)
        except:
            keep_until_done([], (array, out))
            raise
        finally:
            self.busy = False
        return out if has_result else None

    def remember(
            self, array: Any, shape: tuple[int, ...] | None, bint has_result, Request request not None,
            exchange: tuple[Request, Sequence[int], Sequence[int]] | None = None, cache_key: Sequence[int] | None = None) -> None:
        """Adds a call to the cache of CachedMethods.

        `shape`: shape of the output. `has_result`: this rank returns it. `exchange`: (request,
        numbers sent, numbers received) of the exchange before the call. `cache_key`: numbers of the
        caller on which the call depends.
        """
        if self.busy or is_adasum(request.it.call):
            return
        if array is not None and not c_plain_array(<PyObject*>array, <PyTypeObject*>array_type):
            return
        cdef CachedCall* cached = self.cache.renew(request.collective)
        cdef vector[Py_ssize_t] dimensions
        cached.call, cached.span, cached.returns = request.it.call, request.span, has_result
        cached.even = request.it.call.even
        cached.cache_key.clear()
        if cache_key is not None:
            cached.cache_key = cache_key
        cached.exchanges = exchange is not None
        if cached.exchanges:
            exchange_request, cached.sent, cached.expected = exchange
            cached.received.resize(cached.expected.size())
            cached.exchange = (<Request?>exchange_request).it.call
            cached.numbers = cached.expectation()
        if shape is not None:
            dimensions = shape
            cached.result.learn(<PyObject*>array, dimensions)
            cached.shape.hold(<PyObject*>shape)
            dimensions = array.shape
        cached.given.learn(<PyObject*>array, dimensions)  # last: find() returns only complete entries

    def device_route_statuses(self) -> dict[str, str]:
        """Returns, for each GPU route but staging, best first, why it is unusable ("": usable)."""
        cdef vector[string] route_statuses = c_device_route_statuses(self.it.get()[0])
        return {route_statuses[2 * i].decode(): route_statuses[2 * i + 1].decode() for i in range(route_statuses.size() // 2)}

    def watch(self, Processes processes not None, rank_of: dict[int, int]) -> None:  # rank_of: process id -> rank
        self.it.get().watch(<shared_ptr[const CProcesses]>processes.it, rank_of)

    @property
    def broken(self) -> str | None:
        cdef string why = c_why_broken(self.it.get()[0])
        return why.decode() if why.size() else None

    def leave(self) -> None:
        cdef CChannel* channel = self.it.get()
        with nogil:
            channel.leave()

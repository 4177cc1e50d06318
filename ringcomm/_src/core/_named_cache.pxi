# The cache of in-place named operations that a program repeats: the shortest path from Python to
# the engine. Also keeps buffers alive that the core may still use.


cdef list detached = []  # (unfinished operations, owner of their buffers) of dropped handles


def keep_until_done(list operations, buffers: object) -> None:
    """Keeps buffers alive until the operations are done.

    Without operations, these are buffers of a failed call. They are kept until MPI no longer
    transfers messages of failed calls.
    """
    if operations or orphaned_messages() > 0:
        detached.append((operations, buffers))


cdef bint is_over(list operations) except -1:
    return all([operation.over() for operation in operations]) if operations else orphaned_messages() == 0


def reap_finished() -> None:
    """Releases buffers of operations that are done."""
    if not detached:
        return
    cdef list candidates = detached[:]
    detached.clear()  # other threads may append during is_over()
    detached.extend([entry for entry in candidates if not is_over(entry[0])])


cdef class InPlaceHandle:
    """A handle of one in-place operation. Its result is the caller's array."""
    cdef shared_ptr[COperation] it  # null: done
    cdef shared_ptr[CWorker] worker
    cdef object array, error

    cdef Operation operation(self):
        return Operation.wrap(self.it, self.worker)

    @property
    def name(self) -> str: return self.it.get().name.decode() if self.it else "done"

    def test(self) -> bool: return not self.it or self.operation().done()

    def wait(self, timeout: float | None = None) -> Any:
        cdef shared_ptr[COperation] it = self.it  # another thread may wait as well
        if it:
            if in_child:
                raise forked()
            if not wait_until_done(it, self.worker, -1 if timeout is None else timeout):
                raise TimeoutError(f"{it.get().name.decode()} is not done after {timeout} s")
            try:
                raise_failure(it)
            except Exception as error:
                self.error = error
                self.keep()
            self.it.reset()
        if self.error is not None:
            raise self.error
        return self.array

    @property
    def result(self): return self.wait()

    def __repr__(self): return f"<ringcomm.Handle {self.name}: {'done' if self.test() else 'in progress'}>"

    def __del__(self):
        if self.it and not in_child:
            self.keep()

    cdef int keep(self) except -1:
        """Keeps the array alive as long as the operation may use it."""
        if not self.it.get().done() or c_failed(self.it.get()[0]):
            keep_until_done([self.operation()], self.array)


cdef class _CachedRequest:
    """A cached in-place request, with the key of the arrays that it fits."""
    cdef ArrayKey key
    cdef object op
    cdef double pre, post
    cdef shared_ptr[COperationState] request


@auto_pickle(True)
cdef class NamedCalls:
    """A cache of in-place requests of a process set, by name: repeated operations reuse them."""
    cdef Engine engine  # None: caches nothing
    cdef int set_id
    cdef dict cached

    def __init__(self, Engine engine, int set_id):  # engine None: caches nothing
        self.engine, self.set_id, self.cached = engine, set_id, {}

    def try_cached(
            self, name: object, array: Any, op: object, average: object, double pre, double post) -> InPlaceHandle | None:
        """Submits a cached operation. If no cached request fits, only returns None."""
        if average is not None or type(name) is not str:
            return None
        cdef _CachedRequest it = self.cached.get(name)
        if it is None or op is not it.op or pre != it.pre or post != it.post:
            return None
        cdef Py_ssize_t data = it.key.address_if_match(array)
        if data == -1:
            return None
        reap_finished()
        cdef InPlaceHandle handle = InPlaceHandle.__new__(InPlaceHandle)
        handle.it = self.engine.it.get().submit_again(self.set_id, it.request, <void*>data)
        handle.worker = self.engine.worker
        handle.array = array
        return handle

    def remember(
            self, name: object, op: object, double pre, double post, Request request not None, ArrayKey key not None) -> None:  # op: compared by identity
        if self.engine is None or type(name) is not str:
            return
        if len(self.cached) >= MOST_NAMES:
            self.cached.clear()
        cdef _CachedRequest it = _CachedRequest.__new__(_CachedRequest)
        it.op, it.pre, it.post, it.key = op, pre, post, key
        it.request = CEngine.prepare(request.it)
        self.cached[name] = it


MOST_NAMES = 16384  # maximum number of cached names of one set

# Named operations in place that come again and again: the least that lies between Python and the engine.


cdef list detached = []  # (operations, what keeps their buffers), of handles that were dropped before these were done


def keep_until_done(list operations, buffers: object) -> None:
    """Without operations: of a call that has failed, until MPI moves nothing of failed calls."""
    if operations or orphaned_messages() > 0:
        detached.append((operations, buffers))


cdef bint is_over(list operations) except -1:
    return all([operation.over() for operation in operations]) if operations else orphaned_messages() == 0


def reap_finished() -> None:
    """Of what is kept so, whatever is done."""
    if not detached:
        return
    cdef list looked_at = detached[:]
    detached.clear()  # others may come meanwhile
    detached.extend([one for one in looked_at if not is_over(one[0])])


cdef class InPlaceHandle:
    """A handle of one operation whose result is the array that it was given."""
    cdef shared_ptr[COperation] it  # null: over
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

    def __repr__(self): return f"<ringcomm.Handle {self.name}: {'done' if self.test() else 'under way'}>"

    def __del__(self):
        if self.it and not in_child:
            self.keep()

    cdef int keep(self) except -1:
        """The array, as long as the operation may use it."""
        if not self.it.get().done() or c_failed(self.it.get()[0]):
            keep_until_done([self.operation()], self.array)


cdef class _Remembered:
    """A request in place, and the arrays that it is right for."""
    cdef ArrayKey like
    cdef object op
    cdef double pre, post
    cdef shared_ptr[COperationState] request


@auto_pickle(True)
cdef class NamedCalls:
    """In-place requests of one process set, by the caller's names: what is submitted again need not be made again."""
    cdef Engine engine  # None: remembers nothing
    cdef int set_id
    cdef dict known

    def __init__(self, Engine engine, int set_id):  # None: remembers nothing
        self.engine, self.set_id, self.known = engine, set_id, {}

    def again(
            self, name: object, array: Any, op: object, average: object, double pre, double post) -> InPlaceHandle | None:
        """Submits; None, and nothing has happened, if no such operation on an array like this is remembered."""
        if average is not None or type(name) is not str:
            return None
        cdef _Remembered it = self.known.get(name)
        if it is None or op is not it.op or pre != it.pre or post != it.post:
            return None
        cdef Py_ssize_t data = it.like.of(array)
        if data == -1:
            return None
        reap_finished()
        cdef InPlaceHandle handle = InPlaceHandle.__new__(InPlaceHandle)
        handle.it = self.engine.it.get().submit_again(self.set_id, it.request, <void*>data)
        handle.worker = self.engine.worker
        handle.array = array
        return handle

    def remember(
            self, name: object, op: object, double pre, double post, Request request not None, ArrayKey like not None) -> None:  # op: compared by identity
        if self.engine is None or type(name) is not str:
            return
        if len(self.known) >= MOST_NAMES:
            self.known.clear()
        cdef _Remembered it = _Remembered.__new__(_Remembered)
        it.op, it.pre, it.post, it.like = op, pre, post, like
        it.request = CEngine.prepare(request.it)
        self.known[name] = it


MOST_NAMES = 4096  # that are remembered of one set

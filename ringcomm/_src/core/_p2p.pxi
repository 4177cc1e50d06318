# Point-to-point messages of a communicator: blocking calls, requests, and probes.
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize

cdef extern from "p2p/request.hpp" namespace "ringcomm" nogil:
    cdef cppclass CEnvelope "ringcomm::Envelope":
        int source, tag
        uint64_t nbytes
    cdef cppclass CMessage "ringcomm::Request":
        CEnvelope status
        cbool cancelled, lent
        cbool done()
    string c_text_of_message "ringcomm::text_of"(const CMessage&)
    int kAnySource, kAnyTag, kProcNull

cdef extern from "p2p/point_to_point.hpp" namespace "ringcomm" nogil:
    cdef cppclass CPointToPoint "ringcomm::PointToPoint":
        cbool progress()
        cbool cancel(CMessage&)
        vector[uint64_t] sent()
        vector[string] close(const vector[uint64_t]&) except +translate
        vector[string] leave() except +translate
        void watch(shared_ptr[const CProcesses], map[int, int]) except +translate

cdef extern from "engine/worker/message_source.hpp" namespace "ringcomm" nogil:
    cdef cppclass CMessageSource "ringcomm::MessageSource"(CSource):
        CMessageSource(shared_ptr[CWorker], shared_ptr[CPointToPoint], cbool)

cdef extern from "border/p2p.hpp" namespace "ringcomm_border" nogil:
    cdef cppclass ElementSizes:
        Py_ssize_t bytes_of(PyObject*, PyTypeObject*, cbool)
        void learn(PyObject*, Py_ssize_t)
    cdef cppclass Remains:
        cbool lent
        vector[shared_ptr[CMessage]] requests
    shared_ptr[CPointToPoint] c_point_to_point "ringcomm_border::point_to_point"(
        int rank, int size, shared_ptr[CNode], vector[int], shared_ptr[CTransport], int, size_t piece, shared_ptr[CWorker], int64_t,
        double, shared_ptr[CAccount]) except +translate
    CEnvelope c_run "ringcomm_border::run"(
        CPointToPoint&, cbool sends, int peer, int tag, void*, size_t, cbool (*)() noexcept nogil, Remains&) except +translate
    CEnvelope c_send_receive "ringcomm_border::send_receive"(
        CPointToPoint&, int, int, void*, size_t, int, int, void*, size_t, cbool (*)() noexcept nogil, Remains&) except +translate
    shared_ptr[CMessage] c_start "ringcomm_border::start"(CMessageSource&, cbool, int, int, void*, size_t, string) except +translate
    cbool c_wait_message "ringcomm_border::wait"(CMessageSource&, const CMessage&, double, cbool (*)() noexcept nogil) except +translate
    void c_check_message "ringcomm_border::check"(CMessage&) except +translate
    cbool c_probe "ringcomm_border::probe"(CPointToPoint&, int, int, cbool, cbool (*)() noexcept nogil, CEnvelope&) except +translate

ANY_SOURCE: int = kAnySource
ANY_TAG: int = kAnyTag
PROC_NULL: int = kProcNull


@freelist(64)
@auto_pickle(True)
cdef class Status:
    """The status of a message: its source rank, its tag, and its size in bytes.

    Attributes
    ----------
    source, tag : int
        Rank of the sender, and tag of the message.
    nbytes : int
        Size of the message in bytes.
    cancelled : bool
        True if the receive was cancelled; the other attributes are then meaningless.

    Examples
    --------
    >>> x, inbox = np.ones(2), np.empty(2)
    >>> status = comm.sendrecv(x, dest=1 - rank, out=inbox)
    >>> status.nbytes, status.count("float64")
    (16, 2)
    """
    cdef readonly int source, tag
    cdef readonly uint64_t nbytes
    cdef readonly bint cancelled

    @staticmethod
    cdef Status of(CEnvelope it, bint cancelled):
        cdef Status made = Status.__new__(Status)
        made.source, made.tag, made.nbytes, made.cancelled = it.source, it.tag, it.nbytes, cancelled
        return made

    def count(self, dtype: Any = "uint8") -> int:
        """Returns the number of elements of ``dtype``, by default bytes.

        Raises
        ------
        ValueError
            The size of the message is not a multiple of the size of ``dtype``.
        """
        from numpy import dtype as as_dtype
        quotient, remainder = divmod(self.nbytes, as_dtype(dtype).itemsize)
        if remainder:
            raise ValueError(f"{self.nbytes} bytes are not a multiple of the size of {as_dtype(dtype)}")
        return quotient

    def __eq__(self, other):
        if not isinstance(other, Status):
            return NotImplemented
        return (self.source, self.tag, self.nbytes, self.cancelled) == (
            (<Status>other).source, (<Status>other).tag, (<Status>other).nbytes, (<Status>other).cancelled)

    def __repr__(self):
        return f"<ringcomm.Status: source {self.source}, tag {self.tag}, {self.nbytes} bytes{', cancelled' if self.cancelled else ''}>"


cdef list unfinished_messages = []  # requests dropped or interrupted before they were done
cdef list lent_arrays = []  # arrays of failed requests, never freed: MPI or a peer may use them


cdef int reap_messages() except -1:
    cdef MessageRequest request
    if unfinished_messages:
        for request in unfinished_messages:
            if request.over() and request.it.get().lent:
                lent_arrays.append(request.array)
        unfinished_messages[:] = [request for request in unfinished_messages if not request.over()]
    return 0


cdef class MessageRequest:
    """A non-blocking send or receive. It keeps its array alive until it is done.

    Examples
    --------
    >>> inbox = np.empty(2)
    >>> request = comm.irecv(inbox, source=1 - rank)
    >>> comm.send(np.ones(2), dest=1 - rank)
    >>> request.wait().nbytes
    16
    """
    cdef shared_ptr[CMessage] it
    cdef Messages messages
    cdef object array  # keeps the memory

    cdef bint over(self):
        return self.it.get().done()

    def test(self) -> bool:
        """Makes progress; returns True if the request is done. Only ``wait()`` raises its error."""
        if not self.over() and not in_child:
            with nogil:
                self.messages.it.get().progress()
        return self.over()

    def wait(self, timeout: float | None = None) -> Status:
        """Blocks until the request is done, and returns the message's status.

        Raises TimeoutError after ``timeout`` seconds (None: no limit); the request continues.
        """
        cdef double seconds = -1 if timeout is None else timeout
        cdef cbool finished = self.over()
        if not finished:
            if in_child:
                raise forked()
            with nogil:
                finished = c_wait_message(self.messages.source.get()[0], self.it.get()[0], seconds, interrupted)
            if not finished:
                raise TimeoutError(f"{self.text()} is not done after {timeout} s")
        if self.it.get().lent:
            lent_arrays.append(self.array)
        self.array = None
        c_check_message(self.it.get()[0])
        return Status.of(self.it.get().status, self.it.get().cancelled)

    @property
    def name(self) -> str: return self.text()  # "send(dest=1, tag=0) of 8 bytes"

    def cancel(self) -> bool:
        """Cancels a receive that has matched no message; returns True if it was cancelled.

        The request is then done, with the status ``cancelled``.
        """
        return bool(self.messages.it.get().cancel(self.it.get()[0]))

    cdef text(self):
        return c_text_of_message(self.it.get()[0]).decode()

    def __repr__(self):
        return f"<ringcomm.MessageRequest {self.text()}: {'done' if self.over() else 'in progress'}>"

    def __del__(self):
        if in_child or not self.it:  # `it` is null: the request was never started
            return
        if not self.over():
            unfinished_messages.append(self)
        elif self.array is not None and self.it.get().lent:
            lent_arrays.append(self.array)


cdef class Messages:
    """A communicator's messages.

    `describe(array, written)` returns (address, bytes, owner of the memory, True if the description
    may be cached).
    """
    cdef shared_ptr[CPointToPoint] it
    cdef shared_ptr[CMessageSource] source
    cdef shared_ptr[CWorker] worker
    cdef ElementSizes sizes
    cdef object describe

    def __init__(
            self, Worker worker not None, int rank, int size, node: Node | None, on_host: Sequence[int],
            transport: Transport | None, int first_tag, size_t piece, int64_t spin_ns, bint own_core,
            double stall_warn_seconds, Account account not None,
            describe: Callable[[Any, bool], tuple[int, int, Any, bool]]):
        cdef shared_ptr[CTransport] c_transport
        if transport is not None:
            c_transport = (<Transport?>transport).it
        self.it = c_point_to_point(
            rank, size, node_of(node), on_host, c_transport, first_tag, piece, worker.it, spin_ns, stall_warn_seconds, account.it)
        self.worker = worker.it
        self.source = make_shared[CMessageSource](worker.it, self.it, own_core)
        self.worker.get().add(<shared_ptr[CSource]>self.source)
        self.describe = describe

    cdef object memory(self, array, bint written, void** data, size_t* nbytes):
        """Stores address and size of an array. Returns the owner of its memory."""
        cdef Py_ssize_t cached_size = self.sizes.bytes_of(<PyObject*>array, <PyTypeObject*>array_type, written)
        if cached_size >= 0:
            data[0], nbytes[0] = data_of(<PyObject*>array), cached_size
            return array
        address, size, owner, plain = self.describe(array, written)
        data[0], nbytes[0] = <void*><uintptr_t>address, size
        if plain and c_plain_array(<PyObject*>array, <PyTypeObject*>array_type):
            self.sizes.learn(<PyObject*>array.dtype, array.itemsize)
        return owner

    cdef CEnvelope run(self, array, bint sends, int peer, int tag) except *:
        cdef void* data
        cdef size_t nbytes
        cdef Remains remains
        cdef CEnvelope status
        cdef object owner = self.memory(array, not sends, &data, &nbytes)
        try:
            with nogil:
                status = c_run(self.it.get()[0], sends, peer, tag, data, nbytes, interrupted, remains)
        except:
            self.keep(owner, remains)
            raise
        return status

    cdef keep(self, arrays, Remains& remains):
        """Keeps arrays of a failed request alive as long as MPI or a peer may use their memory."""
        cdef MessageRequest made
        if remains.lent:
            lent_arrays.append(arrays)
        for request in range(remains.requests.size()):
            made = MessageRequest.__new__(MessageRequest)
            made.messages, made.array, made.it = self, arrays, remains.requests[request]
            unfinished_messages.append(made)
            self.worker.get().wake()

    def send(self, x: Any, dest: int, tag: int) -> None:
        self.run(x, True, integer_of(dest, "send", "dest"), integer_of(tag, "send", "tag"))

    def recv(self, out: Any, source: int, tag: int) -> Status:
        return Status.of(self.run(out, False, integer_of(source, "recv", "source"), integer_of(tag, "recv", "tag")), False)

    def sendrecv(self, x: Any, dest: int, sendtag: int, out: Any, source: int, recvtag: int) -> Status:
        cdef int to = integer_of(dest, "sendrecv", "dest"), sent_tag = integer_of(sendtag, "sendrecv", "sendtag")
        cdef int sender = integer_of(source, "sendrecv", "source"), tag = integer_of(recvtag, "sendrecv", "recvtag")
        cdef void* data
        cdef void* into
        cdef size_t nbytes, room
        cdef Remains remains
        cdef CEnvelope status
        cdef object out_owner = self.memory(out, True, &into, &room), owner = self.memory(x, False, &data, &nbytes)
        if <uintptr_t>data < <uintptr_t>into + room and <uintptr_t>into < <uintptr_t>data + nbytes:
            owner = PyBytes_FromStringAndSize(<char*>data, nbytes)  # x and out overlap: send a copy of x
            data = PyBytes_AsString(owner)
        try:
            with nogil:
                status = c_send_receive(self.it.get()[0], to, sent_tag, data, nbytes, sender, tag, into, room, interrupted, remains)
        except:
            self.keep((owner, out_owner), remains)
            raise
        return Status.of(status, False)

    cdef MessageRequest start(self, array, bint sends, int peer, int tag, str group):
        cdef void* data
        cdef size_t nbytes
        cdef MessageRequest made = MessageRequest.__new__(MessageRequest)
        reap_messages()
        made.messages = self
        made.array = self.memory(array, not sends, &data, &nbytes)
        made.it = c_start(self.source.get()[0], sends, peer, tag, data, nbytes, group.encode())
        return made

    def isend(self, x: Any, dest: int, tag: int, str group="") -> MessageRequest:
        return self.start(x, True, integer_of(dest, "isend", "dest"), integer_of(tag, "isend", "tag"), group)

    def irecv(self, out: Any, source: int, tag: int, str group="") -> MessageRequest:
        return self.start(out, False, integer_of(source, "irecv", "source"), integer_of(tag, "irecv", "tag"), group)

    def probe(self, source: int, tag: int, bint waits) -> Status | None:
        cdef CEnvelope found
        cdef int sender = integer_of(source, "probe", "source"), wanted_tag = integer_of(tag, "probe", "tag")
        cdef cbool matched
        with nogil:
            matched = c_probe(self.it.get()[0], sender, wanted_tag, waits, interrupted, found)
        return Status.of(found, False) if matched else None

    def sent(self) -> list[int]:
        """Returns the numbers of messages sent to each rank; empty if all ranks share memory."""
        return self.it.get().sent()

    def close(self, sent_to_this_rank: Sequence[int]) -> list[str]:
        """Closes the messages. Returns texts of unreceived messages and unfinished requests.

        `sent_to_this_rank`: number of messages from each rank to this rank.
        """
        cdef vector[string] lines
        cdef vector[uint64_t] sent = sent_to_this_rank
        with nogil:
            lines = self.it.get().close(sent)
            self.worker.get().remove(<shared_ptr[CSource]>self.source)
        reap_messages()
        return [line.decode() for line in lines]

    def leave(self) -> list[str]:  # close() that is not collective
        cdef vector[string] lines
        with nogil:
            lines = self.it.get().leave()
            self.worker.get().remove(<shared_ptr[CSource]>self.source)
        return [line.decode() for line in lines]

    def watch(self, Processes processes not None, rank_of: dict[int, int]) -> None:  # rank_of: process id -> rank
        self.it.get().watch(<shared_ptr[const CProcesses]>processes.it, rank_of)

# Queues of non-blocking calls, and the engine, which runs named operations and plans.
cdef extern from "border/named.hpp":
    CPlanBucket c_bucket "ringcomm_border::bucket"(int, vector[size_t], uint64_t, cbool, uint64_t, uint64_t, vector[pair[size_t, size_t]],
                                                     size_t, cbool, vector[vector[size_t]], cbool)
    shared_ptr[CPlan] c_make_plan "ringcomm_border::make_plan"(CEngine&, int, string, vector[CPlanBucket], int, double, double, size_t,
                                                               shared_ptr[CNode], int, string, cbool, cbool) except +translate nogil

cdef extern from "engine/worker/queue.hpp" namespace "ringcomm" nogil:
    cdef cppclass CCallQueue "ringcomm::CallQueue"(CSource):
        @staticmethod
        shared_ptr[CCallQueue] make(shared_ptr[CWorker], shared_ptr[CChannel]) except +translate
        shared_ptr[COperation] submit(CCall) except +translate
        void close() except +translate

cdef extern from "engine/engine.hpp" namespace "ringcomm" nogil:
    cdef cppclass CEngineConfig "ringcomm::EngineConfig":
        size_t fusion_bytes, cache_capacity
        double stall_warn_seconds, stall_fail_seconds
        CChannelConfig channel
    cdef cppclass COperationState "ringcomm::OperationState"(COperation):
        pass
    cdef cppclass CEngine "ringcomm::Engine":
        CEngine(shared_ptr[CWorker], shared_ptr[CTransport], CEngineConfig) except +translate
        void wake()
        void watch(shared_ptr[CProcesses], map[int, int]) except +translate
        vector[int] lost()
        int add_set(vector[int], shared_ptr[CNode], int) except +translate
        void remove_set(int) except +translate
        cbool has_room_for_plan(int) except +translate
        shared_ptr[COperation] submit(int, CNamedRequest) except +translate
        @staticmethod
        shared_ptr[COperationState] prepare(CNamedRequest) except +translate
        shared_ptr[COperation] submit_again "submit"(int, shared_ptr[COperationState]&, void*) except +translate
        vector[shared_ptr[COperation]] submit_group(int, vector[CNamedRequest]) except +translate
        vector[shared_ptr[COperation]] join(vector[int]) except +translate
        void leave() except +translate
        vector[string] pending()


cdef class Queue:
    """The non-blocking calls of a channel, which the worker runs in the order of submission."""
    cdef shared_ptr[CCallQueue] it
    cdef shared_ptr[CWorker] worker

    def __init__(self, Worker worker not None, Channel channel not None):
        self.worker = worker.it
        self.it = CCallQueue.make(worker.it, channel.it)

    def submit(self, Request request not None, str name=None, uintptr_t address=0) -> Operation:
        """Submits a call. `name`: repeats an in-place request, with this name, on other memory.

        The memory is at `address`.
        """
        cdef CCall call = request.it.call
        if name is not None:
            call.input, call.output, call.name = <const void*>address, <void*>address, name.encode()
        return Operation.wrap(self.it.get().submit(move(call)), self.worker).of(request)

    def close(self) -> None:
        with nogil:
            self.it.get().close()


cdef class Engine:
    cdef shared_ptr[CEngine] it
    cdef shared_ptr[CWorker] worker

    def __init__(self, Worker worker not None, Transport transport not None, config: ChannelConfig):
        cdef CEngineConfig c
        options = config.options
        c.fusion_bytes, c.cache_capacity = options.fusion_bytes, options.cache_capacity
        c.stall_warn_seconds, c.stall_fail_seconds = options.stall_warn_seconds, options.stall_fail_seconds
        c.channel = channel_config(config)
        self.worker = worker.it
        self.it = make_shared[CEngine](worker.it, transport.it, c)

    def watch(self, Processes processes not None, rank_of: dict[int, int]) -> None:  # rank_of: process id -> rank
        self.it.get().watch(processes.it, rank_of)

    def lost(self) -> list[int]: return list(self.it.get().lost())  # ranks that a fatal error named

    def add_set(self, ranks: Sequence[int], node: Node | None, int slot) -> int:
        return self.it.get().add_set(ranks, node_of(node), slot)

    def remove_set(self, int set_id) -> None:
        with nogil:
            self.it.get().remove_set(set_id)

    def submit(self, int set_id, Request request not None) -> Operation:
        return Operation.wrap(self.it.get().submit(set_id, request.it), self.worker).of(request)

    def submit_group(self, int set_id, requests: Sequence[Request]) -> list[Operation]:
        cdef vector[CNamedRequest] all_requests
        cdef vector[shared_ptr[COperation]] out
        for request in requests:
            all_requests.push_back((<Request?>request).it)
        out = self.it.get().submit_group(set_id, all_requests)
        return [Operation.wrap(out[i], self.worker).of(request) for i, request in enumerate(requests)]

    def join(self, set_ids: Sequence[int]) -> list[Operation]:  # each is done when all ranks of its set joined
        cdef vector[shared_ptr[COperation]] out = self.it.get().join(set_ids)
        return [Operation.wrap(out[i], self.worker) for i in range(out.size())]

    def make_plan(
            self, int set_id, str name, buckets: Sequence[BucketShape], int op, double pre, double post,
            size_t items, node: Node | None, int slot, str algorithm="", bint by_priority=False, bint overlaps=True) -> Plan:
        cdef vector[CPlanBucket] all_buckets
        cdef string c_name = name.encode(), c_algorithm = algorithm.encode()
        cdef shared_ptr[CNode] on_host = node_of(node)
        cdef Plan made = Plan.__new__(Plan)
        for dtype, stretches, (wire, feedback, first, first_steps), gaps, (rank, warm_start, matrices), on_device in buckets:
            all_buckets.push_back(c_bucket(dtype, stretches, wire, feedback, first, first_steps, gaps, rank, warm_start,
                                           matrices, on_device))
        made.worker = self.worker
        with nogil:
            made.it = c_make_plan(self.it.get()[0], set_id, c_name, all_buckets, op, pre, post, items, on_host, slot,
                                  c_algorithm, by_priority, overlaps)
        return made

    def has_room_for_plan(self, int set_id) -> bool:
        return bool(self.it.get().has_room_for_plan(set_id))

    def leave(self) -> None:
        with nogil:
            self.it.get().leave()

    def pending(self) -> list[str]:
        return [name.decode() for name in self.it.get().pending()]

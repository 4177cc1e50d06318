# Messages beside collectives.
cdef class Letters:
    cdef shared_ptr[CLetters] it
    cdef shared_ptr[CEngine] engine

    def __init__(self, Engine engine not None):
        self.it, self.engine = make_shared[CLetters](), engine.it
        self.engine.get().add_service(self.it)

    def post(self, int peer, bytes letter not None):
        self.it.get().post(pair[int, string](peer, letter))
        self.engine.get().wake()

    def collect(self): return self.it.get().collect()
    @property
    def why(self): return self.it.get().why().decode()

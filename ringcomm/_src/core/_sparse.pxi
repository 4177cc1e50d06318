# Sums of sparse tables (csrc/codecs/sparse_tables.hpp).
cdef extern from "codecs/sparse_tables.hpp" namespace "ringcomm" nogil:
    cdef cppclass CSparseTable "ringcomm::SparseTable":
        CSparseTable()
        DType dtype
        size_t width
        uint64_t rows
    cdef cppclass CSparseTables "ringcomm::SparseTables":
        CSparseTables(vector[CSparseTable]) except +translate
        void add(size_t, const int64_t*, const void*, size_t) except +translate
        size_t added(size_t)
        size_t count(size_t) except +translate
        void write(size_t, int64_t*, void*, Scale, const void*) except +translate
        vector[size_t] packed_bytes(size_t) except +translate

cdef extern from "border/sparse.hpp" namespace "ringcomm_border" nogil:
    void c_add_packed "ringcomm_border::add_packed"(CSparseTables&, const string&, uintptr_t, size_t) except +translate
    void c_pack "ringcomm_border::pack"(CSparseTables&, size_t owners, int rank, uintptr_t out) except +translate


cdef class SparseTables:
    """The sum of sparse tables: (dtype, elements of a row, rows) each. Addresses must stay valid."""
    cdef shared_ptr[CSparseTables] it
    cdef size_t tables

    def __init__(self, tables: Sequence[tuple[int, int, int]]):
        cdef vector[CSparseTable] all_tables
        cdef CSparseTable table
        for dtype, width, rows in tables:
            table.dtype, table.width, table.rows = <DType><int>dtype, width, rows
            all_tables.push_back(table)
        self.it = make_shared[CSparseTables](all_tables)
        self.tables = all_tables.size()

    cdef int require(self, size_t table) except -1:
        if table >= self.tables:
            raise IndexError(table)
        return 0

    def add(self, size_t table, uintptr_t indices, uintptr_t values, size_t count) -> None:
        self.require(table)
        with nogil:
            self.it.get().add(table, <const int64_t*>indices, <const void*>values, count)

    def add_packed(self, str operation, uintptr_t blocks, size_t nbytes) -> None:
        cdef string name = operation.encode()
        with nogil:
            c_add_packed(self.it.get()[0], name, blocks, nbytes)

    def added(self) -> list[int]:
        """Returns the number of entries added to each table, with duplicates."""
        return [self.it.get().added(i) for i in range(self.tables)]

    def counts(self) -> list[int]:
        """Returns the number of distinct rows of each table."""
        return [self.it.get().count(i) for i in range(self.tables)]

    def write(self, size_t table, uintptr_t indices, uintptr_t values, double factor, int64_t divisor, uintptr_t next_used=0) -> None:
        self.require(table)
        with nogil:
            self.it.get().write(table, <int64_t*>indices, <void*>values, make_scale(factor, divisor), <const void*>next_used)

    def packed_bytes(self, size_t owners) -> list[int]:
        """Returns the bytes of each owner's block."""
        return self.it.get().packed_bytes(owners)

    def pack(self, size_t owners, int rank, uintptr_t out) -> None:
        with nogil:
            c_pack(self.it.get()[0], owners, rank, out)

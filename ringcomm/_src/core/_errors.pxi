# Conversion of the core's typed errors to Python exceptions, for all functions of the binding.
cdef extern from "border/errors.hpp":
    void translate "ringcomm_border::translate"()
    void add_error_type "ringcomm_border::add_error_type"(object)
    void clear_error_types "ringcomm_border::clear_error_types"()
    cbool interrupted "ringcomm_border::interrupted"() noexcept nogil

cdef extern from "<exception>" namespace "std" nogil:
    cdef cppclass exception_ptr:
        pass

cdef extern from *:
    void rethrow "ringcomm_border::rethrow"(exception_ptr error) except +translate


def set_error_types(types: Sequence[type[BaseException]]) -> None:
    """Sets the exception classes in the order of ErrorKind (csrc/base/error.hpp)."""
    clear_error_types()
    for error_type in types:
        add_error_type(error_type)

# Conversion of Python integers to C. Cython's own conversion truncates 1.7 to 1.
cdef extern from "Python.h":
    bint PyIndex_Check(object)
    object PyNumber_Index(object)
    long long PyLong_AsLongLongAndOverflow(object, int*)


cdef inline bint is_integer(object value, int64_t* into):
    """Returns True and stores the integer if `value` is one of at most 64 bits. Never raises."""
    cdef int overflow = 0
    if type(value) is not int:
        if type(value) is bool or not PyIndex_Check(value):
            return False
        if not isinstance(value, int):  # an enum is an int already
            value = PyNumber_Index(value)
    into[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0


cdef inline bint is_number(object value, double* into) except -1:
    """Returns True and stores the number if `value` is one."""
    try:
        into[0] = value
        return True
    except Exception:
        return False


cdef inline int integer_of(object value, str call, str name) except? -1:
    """Returns an argument as a C int. TypeError: it is no integer; ValueError: out of range."""
    cdef int64_t number
    if type(value) is int and is_integer(value, &number) and number == <int>number:
        return <int>number
    from ringcomm._src.base.arguments import integer
    value = integer(f"{call}: {name}", value)
    if not is_integer(value, &number) or number != <int>number:
        raise ValueError(f"{call}: {name} {value} is out of range")
    return <int>number

# The status of the SystemExit that is ending the interpreter. Python keeps it nowhere that a module could read: when no
# handler is left it takes the number out, destroys the exception, and only then runs atexit's functions. So its destructor
# is told: an exception that the main thread destroys while no Python code runs is that one.
cdef extern from "border/exits.hpp":
    int ringcomm_exit_status, ringcomm_last_status
    void ringcomm_watch_exit(unsigned long main_thread, Py_ssize_t code_at)
    void ringcomm_end()
    int Py_AtExit(void (*function)())


def watch_exit(main_thread: int) -> None:
    """From now on exit_status() tells. `main_thread`: its identifier, as threading gives it."""
    # The code is the last field of a SystemExit.
    ringcomm_watch_exit(main_thread, SystemExit.__basicsize__ - <Py_ssize_t>sizeof(void*))


def exit_status() -> int:
    """In atexit's functions: the status of the SystemExit that ends the interpreter, 0 if there is none."""
    return ringcomm_exit_status


def end_without_mpi(int status) -> None:
    """The process ends with this status as soon as Python has: before what was registered earlier, as MPI's end is."""
    global ringcomm_last_status
    ringcomm_last_status = status
    Py_AtExit(ringcomm_end)


cdef bint in_child = False  # of a fork: it waits for nothing
cdef object forked = None  # makes the error that says so


def enter_child(make_error: Callable[[], Exception]) -> None:
    """This process is a forked child: a handle raises what `make_error` makes."""
    global in_child, forked
    in_child, forked = True, make_error

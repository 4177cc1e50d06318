# The status of the SystemExit that ends the interpreter. No module can read it from Python: when no
# handler is left, Python takes the number out, destroys the exception, and only then runs atexit's
# functions. So border/exits.hpp replaces the destructor of SystemExit: the exception that the main
# thread destroys while no Python frame runs is the one that ends the interpreter.
cdef extern from "border/exits.hpp":
    int ringcomm_exit_status, ringcomm_last_status
    void ringcomm_watch_exit(unsigned long main_thread, Py_ssize_t code_at)
    void ringcomm_end()
    int Py_AtExit(void (*function)())


def watch_exit(main_thread: int) -> None:
    """Enables exit_status(). `main_thread`: the main thread's identifier, from threading."""
    # The code is the last field of SystemExit's struct.
    ringcomm_watch_exit(main_thread, SystemExit.__basicsize__ - <Py_ssize_t>sizeof(void*))


def exit_status() -> int:
    """Returns the status of the SystemExit that ends the interpreter, else 0; for atexit."""
    return ringcomm_exit_status


def end_without_mpi(int status) -> None:
    """Makes the process end with this status after Python, but before MPI's exit functions."""
    global ringcomm_last_status
    ringcomm_last_status = status
    Py_AtExit(ringcomm_end)


cdef bint in_child = False  # this process is a forked child: it must not wait
cdef object forked = None  # makes the error for calls in a forked child


def enter_child(make_error: Callable[[], Exception]) -> None:
    """Marks this process as a forked child: handles raise the error that `make_error` returns."""
    global in_child, forked
    in_child, forked = True, make_error

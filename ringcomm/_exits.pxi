# The status of the SystemExit that is ending the interpreter. Python keeps it nowhere that a module could read: when no
# handler is left it takes the number out, destroys the exception, and only then runs atexit's functions. So its destructor
# is told: an exception that the main thread destroys while no Python code runs is that one.
cdef extern from *:
    """
    static destructor ringcomm_destroy_exit = nullptr;
    static unsigned long ringcomm_main_thread = 0;
    static int ringcomm_exit_status = 0;

    static void ringcomm_see_exit(PyObject* self) {
      if (PyThread_get_thread_ident() == ringcomm_main_thread && PyEval_GetFrame() == nullptr) {
        PyObject* const code = reinterpret_cast<PySystemExitObject*>(self)->code;
        if (code == nullptr || code == Py_None) {
          ringcomm_exit_status = 0;
        } else if (PyLong_Check(code)) {
          int overflow = 0;
          ringcomm_exit_status = static_cast<int>(PyLong_AsLongLongAndOverflow(code, &overflow) & 0xFF);
        } else {
          ringcomm_exit_status = 1;  // what is no number is printed
        }
      }
      ringcomm_destroy_exit(self);
    }

    static void ringcomm_watch_exit(unsigned long main_thread) {
      auto* const type = reinterpret_cast<PyTypeObject*>(PyExc_SystemExit);
      ringcomm_main_thread = main_thread;
      if (type->tp_dealloc == ringcomm_see_exit) return;
      ringcomm_destroy_exit = type->tp_dealloc;
      type->tp_dealloc = ringcomm_see_exit;
    }
    """
    int ringcomm_exit_status
    void ringcomm_watch_exit(unsigned long main_thread)


def watch_exit(main_thread):
    ringcomm_watch_exit(main_thread)


def exit_status():
    return ringcomm_exit_status


cdef bint in_child = False  # of a fork: it waits for nothing
cdef object forked = None  # makes the error that says so


def enter_child(make_error):
    global in_child, forked
    in_child, forked = True, make_error

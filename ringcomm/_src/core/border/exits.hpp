// The status of the SystemExit that ends the interpreter (_exits.pxi): how it is found, and why in this way.
//
// A rank that ends with `sys.exit(1)` must end the job: its peers may compute for hours before they need it, and the
// launcher waits with them. But an extension cannot ask Python for the status. When no handler is left, Python takes
// the number out of the exception, destroys the exception, and then runs atexit's functions; `sys.last_value` is not
// set, and Py_AtExit's functions get no argument. What else was tried:
// - replacing `sys.exit` (done before Python 3.12, for another reason) does not see `raise SystemExit(1)`, and cannot
//   tell an exit that the script catches from one that ends it;
// - a wrapper around the script needs users to start their scripts differently;
// - RankLeftError, which peers get without this, comes only when a peer needs this rank.
//
// So the destructor of SystemExit is replaced, in the type's own table. An exception that the main thread destroys
// while no Python frame runs is the one that ends the interpreter. The destructor's place is searched for, not assumed:
// where CPython keeps it elsewhere nothing is replaced, and peers get RankLeftError. Every other SystemExit costs two
// comparisons. tests/ranks/test_exits.py holds it for each Python that the matrix has.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

static destructor ringcomm_destroy_exit = nullptr;
static Py_ssize_t ringcomm_code_of_exit = 0;  // where a SystemExit has its code
static unsigned long ringcomm_main_thread = 0;
static int ringcomm_exit_status = 0;

static void ringcomm_see_exit(PyObject* self) {
  if (PyThread_get_thread_ident() == ringcomm_main_thread && PyEval_GetFrame() == nullptr) {
    PyObject* code = nullptr;
    std::memcpy(&code, reinterpret_cast<const char*>(self) + ringcomm_code_of_exit, sizeof code);
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

// `code_at` bytes from an exception's beginning is its code. A type's head is the same in every CPython: the destructor
// is where Python says that it is, or nothing is watched.
static void ringcomm_watch_exit(unsigned long main_thread, Py_ssize_t code_at) {
  constexpr std::size_t kWords = 16;
  void* const type = PyExc_SystemExit;
  void* const destroy = PyType_GetSlot(reinterpret_cast<PyTypeObject*>(type), Py_tp_dealloc);
  ringcomm_main_thread = main_thread;
  ringcomm_code_of_exit = code_at;
  if (destroy == nullptr || destroy == reinterpret_cast<void*>(ringcomm_see_exit)) return;
  void** const words = static_cast<void**>(type);
  void** const found = std::find(words, words + kWords, destroy);
  if (found == words + kWords) return;
  ringcomm_destroy_exit = reinterpret_cast<destructor>(destroy);
  *found = reinterpret_cast<void*>(ringcomm_see_exit);
}

static int ringcomm_last_status = 0;

static void ringcomm_end() {
  std::fflush(nullptr);
  ::_exit(ringcomm_last_status);
}

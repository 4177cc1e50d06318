// Finds the status of the SystemExit that ends the interpreter (_exits.pxi).
//
// A rank that ends with `sys.exit(1)` must end the job: its peers may compute for hours before they
// need it, and the launcher waits for them. But an extension cannot read the status from Python.
// When no handler is left, Python takes the number out of the exception, destroys the exception,
// and then runs atexit's functions. It does not set `sys.last_value`, and Py_AtExit's functions get
// no argument. Rejected alternatives:
// - A replacement of `sys.exit` is not called by `raise SystemExit(1)`. It cannot distinguish an
//   exit that the script catches from one that ends the script. (Before Python 3.12,
//   process/exits.py replaces `sys.exit`, but only so that this code gets an exception object.)
// - With a wrapper around the script, users must start their scripts differently.
// - RankLeftError, which peers get without this code, is raised only when a peer needs this rank.
//
// So this code replaces the destructor of SystemExit, in the struct of the type. An exception that
// the main thread destroys while no Python frame runs is the one that ends the interpreter. The
// code searches for the destructor's slot. If CPython stores it elsewhere, nothing is replaced, and
// peers get RankLeftError. Every other SystemExit costs two comparisons. tests/ranks/test_exits.py
// checks this code for each Python version of the test matrix.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

static destructor ringcomm_destroy_exit = nullptr;
static Py_ssize_t ringcomm_code_of_exit = 0;  // offset of the code in a SystemExit
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
      ringcomm_exit_status = 1;  // Python prints a code that is no number, and exits with 1
    }
  }
  ringcomm_destroy_exit(self);
}

// Replaces the destructor of SystemExit. `code_at`: offset of the code in the exception, in bytes.
// Searches only the head of the type, which all CPython versions share, for the slot that contains
// the destructor; if none does, nothing is replaced.
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

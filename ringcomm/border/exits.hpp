// The status of the SystemExit that ends the interpreter (_exits.pxi).
#pragma once

#include <Python.h>
#include <unistd.h>

#include <cstdio>

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

static int ringcomm_last_status = 0;

static void ringcomm_end() {
  std::fflush(nullptr);
  ::_exit(ringcomm_last_status);
}

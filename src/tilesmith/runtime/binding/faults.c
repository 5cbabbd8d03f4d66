/* Where a process was when the system ended it: the address goes into memory that outlives it. */
#include "loaded.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>

static volatile uint64_t *fault_place;

/* Note the address, and return to the faulting instruction, which now has the system's own answer. */
static void on_fault(int number, siginfo_t *facts, void *context) {
  (void)context;
  if (fault_place != NULL) *fault_place = (uint64_t)(uintptr_t)facts->si_addr;
  signal(number, SIG_DFL);
}

PyObject *watch_faults(PyObject *module, PyObject *buffer) {
  (void)module;
  static Py_buffer held; /* for the life of the process, as the handler */
  if (fault_place != NULL) {
    PyErr_SetString(PyExc_ValueError, "faults are watched already");
    return NULL;
  }
  if (PyObject_GetBuffer(buffer, &held, PyBUF_WRITABLE) < 0) return NULL;
  if (held.len < (Py_ssize_t)sizeof *fault_place || (uintptr_t)held.buf % sizeof *fault_place) {
    PyBuffer_Release(&held);
    PyErr_SetString(PyExc_ValueError, "needs 8 aligned bytes");
    return NULL;
  }
  fault_place = held.buf;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  Py_RETURN_NONE;
}

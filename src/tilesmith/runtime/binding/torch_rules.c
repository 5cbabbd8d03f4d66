#include "torch_rules.h"

/* A question to PyTorch that costs some 20 ns, and the module's attributes that lead to it. */
typedef struct question {
  const char *path[3];
  PyObject *ask; /* NULL until it was looked for; None if this PyTorch has none */
} question;

enum { MODES, TRACING, TRANSFORMS, FUNCTION_MODES, QUESTIONS };

static question questions[QUESTIONS] = {
    {{"_C", "_len_torch_dispatch_stack"}, NULL},
    {{"_C", "_is_tracing"}, NULL},
    {{"_C", "_functorch", "peek_interpreter_stack"}, NULL},
    {{"_C", "_len_torch_function_stack"}, NULL},
};

static PyObject *find(PyObject *torch, const char *const *path) {
  PyObject *at = Py_NewRef(torch);
  for (int i = 0; at != NULL && i < 3 && path[i] != NULL; i++)
    Py_SETREF(at, PyObject_GetAttrString(at, path[i]));
  PyErr_Clear();
  return at != NULL ? at : Py_NewRef(Py_None);
}

/* 1 if the answer is anything but no: None, False or 0. */
static int answers_yes(question *one, PyObject *torch) {
  if (one->ask == NULL) one->ask = find(torch, one->path);
  if (one->ask == Py_None) return 0;
  PyObject *answer = PyObject_CallNoArgs(one->ask);
  const int yes = answer != NULL && answer != Py_None && PyObject_IsTrue(answer) != 0;
  if (answer == NULL) PyErr_Clear();
  Py_XDECREF(answer);
  return yes;
}

/* Whether tensors may have tangents now: forward-mode derivatives. */
static int in_dual_level(PyObject *torch) {
  static PyObject *facts, *name_level;
  if (facts == NULL) {
    name_level = PyUnicode_InternFromString("_current_level");
    static const char *const path[3] = {"autograd", "forward_ad"};
    PyObject *module = find(torch, path);
    facts = PyModule_Check(module) ? Py_NewRef(PyModule_GetDict(module)) : Py_NewRef(Py_None);
    Py_DECREF(module);
  }
  PyObject *level = facts == Py_None ? NULL : PyDict_GetItemWithError(facts, name_level);
  return level != NULL && PyLong_Check(level) && PyLong_AsLong(level) >= 0;
}

/* Call a function of torch_rules.py with one argument; -1 with an exception set if it raises. */
static int ask_python(const char *name, PyObject *argument) {
  static PyObject *rules;
  if (rules == NULL) rules = PyImport_ImportModule("tilesmith.runtime.torch_rules");
  PyObject *done = rules ? PyObject_CallMethod(rules, name, "(O)", argument) : NULL;
  Py_XDECREF(done);
  return done == NULL ? -1 : 0;
}

int torch_check_call(PyObject *const *tensors, Py_ssize_t count) {
  static PyObject *torch;
  if (torch == NULL) torch = Py_XNewRef(PyDict_GetItemString(PyImport_GetModuleDict(), "torch"));
  if (torch == NULL) return 0;
  int watched = in_dual_level(torch);
  for (int i = 0; i < QUESTIONS && !watched; i++)
    watched = answers_yes(&questions[i], torch);
  if (!watched) return 0;
  PyObject *all = PyTuple_New(count);
  for (Py_ssize_t i = 0; all != NULL && i < count; i++)
    PyTuple_SET_ITEM(all, i, Py_NewRef(tensors[i]));
  const int refused = all == NULL ? -1 : ask_python("refuse_watched", all);
  Py_XDECREF(all);
  return refused;
}

int torch_check_result(PyObject *out) {
  PyObject *
    requires
  = PyObject_GetAttrString(out, "requires_grad");
  if (requires == NULL) PyErr_Clear();
  const int refused =
    requires ==
                 Py_True ? ask_python("refuse_result", out) : 0;
  Py_XDECREF(requires);
  return refused;
}

int torch_note_written(PyObject *out) {
  if (!PyObject_HasAttrString((PyObject *)Py_TYPE(out), "_version")) return 0;
  return ask_python("note_written", out);
}

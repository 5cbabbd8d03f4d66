#include "torch_rules.h"

/* A question to PyTorch that costs some 20 ns, and the module's attributes that lead to it. */
typedef struct question {
  const char *path[3];
  PyObject *ask; /* NULL until it was looked for; None if this PyTorch has none */
} question;

/* The first four may hide the call from what watches the thread; an operator of PyTorch obeys the other three, too. */
enum { MODES, TRACING, TRANSFORMS, FUNCTION_MODES, HIDING, AUTOCAST = HIDING, PROFILER, DETERMINISTIC, QUESTIONS };

static question questions[QUESTIONS] = {
    {{"_C", "_len_torch_dispatch_stack"}, NULL},
    {{"_C", "_is_tracing"}, NULL},
    {{"_C", "_functorch", "peek_interpreter_stack"}, NULL},
    {{"_C", "_len_torch_function_stack"}, NULL},
    {{"_C", "_is_any_autocast_enabled"}, NULL},
    {{"_C", "_autograd", "_profiler_enabled"}, NULL},
    {{"_C", "_get_deterministic_algorithms"}, NULL},
};

static PyObject *find(PyObject *torch, const char *const *path) {
  PyObject *at = Py_NewRef(torch);
  for (int i = 0; at != NULL && i < 3 && path[i] != NULL; i++)
    replace_reference(&at, PyObject_GetAttrString(at, path[i]));
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

/* Borrowed; NULL while PyTorch is not loaded. */
static PyObject *loaded_torch(void) {
  static PyObject *torch;
  if (torch == NULL) torch = Py_XNewRef(PyDict_GetItemString(PyImport_GetModuleDict(), "torch"));
  return torch;
}

static int any_yes(int from, int to, PyObject *torch) {
  for (int i = from; i < to; i++)
    if (answers_yes(&questions[i], torch)) return 1;
  return 0;
}

int torch_is_watched(void) {
  PyObject *torch = loaded_torch();
  return torch != NULL && (in_dual_level(torch) || any_yes(0, HIDING, torch));
}

int torch_has_settings(void) {
  PyObject *torch = loaded_torch();
  return torch != NULL && any_yes(HIDING, QUESTIONS, torch);
}

PyObject *torch_settings(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  return PyBool_FromLong(torch_has_settings());
}

PyObject *torch_watches(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  return PyBool_FromLong(torch_is_watched());
}

int torch_check_call(PyObject *const *tensors, Py_ssize_t count) {
  if (!torch_is_watched()) return 0;
  PyObject *all = PyTuple_New(count);
  for (Py_ssize_t i = 0; all != NULL && i < count; i++)
    PyTuple_SetItem(all, i, Py_NewRef(tensors[i]));
  const int refused = all == NULL ? -1 : ask_python("refuse_watched", all);
  Py_XDECREF(all);
  return refused;
}

int torch_check_result(PyObject *out) {
  PyObject *recorded = PyObject_GetAttrString(out, "requires_grad");
  if (recorded == NULL) PyErr_Clear();
  const int refused = recorded == Py_True ? ask_python("refuse_result", out) : 0;
  Py_XDECREF(recorded);
  return refused;
}

int torch_note_written(PyObject *out) {
  if (!PyObject_HasAttrString((PyObject *)Py_TYPE(out), "_version")) return 0;
  return ask_python("note_written", out);
}

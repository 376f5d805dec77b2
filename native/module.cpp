// The extension module pooltide._native: what Python calls of the compiled code.

#include "memory.h"

#include <sys/mman.h>

#include <exception>
#include <new>

#include "prepared.h"

namespace {

using pooltide::Arrays;
using pooltide::AxisTables;
using pooltide::Fault;
using pooltide::Ints;
using pooltide::Memory;
using pooltide::kAligned;
using pooltide::kNative;
using pooltide::kWriteable;
using pooltide::Problem;

struct PreparedObject {
  PyObject_HEAD
  pooltide::Prepared* prepared;
};

PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 4) return PyErr_Format(PyExc_TypeError, "run(grad_output, indices, out, threads) got %zd arguments", n);
  const pooltide::Prepared& prepared = *reinterpret_cast<PreparedObject*>(self)->prepared;
  const Problem& p = prepared.problem();
  int itemsize = static_cast<int>(p.itemsize());
  int64_t windows = p.planes() * p.windows();
  Memory grad, indices, out;
  constexpr int readable = kAligned | kNative;
  if (!grad.take(args[0], "grad_output", windows, itemsize, readable)) return nullptr;
  if (p.index_bytes && !indices.take(args[1], "indices", windows, p.index_bytes, readable)) return nullptr;
  if (!out.take(args[2], "out", p.planes() * p.cells(), itemsize, readable | kWriteable)) return nullptr;
  if (!grad.usable || !indices.usable || !out.usable || out.meets(grad) || out.meets(indices))
    Py_RETURN_NOTIMPLEMENTED;
  long threads = PyLong_AsLong(args[3]);
  if (threads == -1 && PyErr_Occurred()) return nullptr;
  Fault fault;
  bool starved = false;
  Arrays arrays{grad.data, indices.data, out.data, false};
  int limited = static_cast<int>(threads > 4096 ? 4096 : threads);
  Py_BEGIN_ALLOW_THREADS
  try {
    fault = prepared.run(arrays, limited);
  } catch (const std::bad_alloc&) {
    starved = true;
  }
  Py_END_ALLOW_THREADS
  if (starved) return PyErr_NoMemory();
  if (fault.count == 0) Py_RETURN_NONE;
  return Py_BuildValue("LLL", (long long)fault.count, (long long)fault.position, (long long)fault.value);
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  int kind, store, quotient, channels_last, index_bytes;
  double divisor;
  long long batch, channels;
  Ints t[9], jump;
  if (!PyArg_ParseTuple(args, "iiidpiLLy*y*y*y*y*y*y*y*y*y*", &kind, &store, &quotient, &divisor, &channels_last,
                        &index_bytes, &batch, &channels, &t[0].view, &t[1].view, &t[2].view, &t[3].view,
                        &t[4].view, &t[5].view, &t[6].view, &t[7].view, &t[8].view, &jump.view))
    return nullptr;
  if (jump.size() != (index_bytes == 1 ? pooltide::kOffsets : 0))
    return PyErr_Format(PyExc_ValueError, "jump has %lld elements", (long long)jump.size());
  AxisTables axes[3];
  for (int i = 0; i < 3; i++) {
    const Ints *first = &t[3 * i], *count = first + 1, *sizes = first + 2;
    if (first->size() != count->size())
      return PyErr_Format(PyExc_ValueError, "axis %d: first and count differ in length", i);
    axes[i] = {first->data(), count->data(), sizes->data(), first->size(), sizes->size()};
    for (int64_t c = 0; c < first->size(); c++)
      if (first->data()[c] < 0 || count->data()[c] < 0 || first->data()[c] + count->data()[c] > sizes->size())
        return PyErr_Format(PyExc_ValueError, "axis %d: cell %lld lies in no such windows", i, (long long)c);
  }
  Problem facts;
  facts.kind = static_cast<pooltide::Kind>(kind);
  facts.store = static_cast<pooltide::Store>(store);
  facts.quotient = static_cast<pooltide::Quotient>(quotient);
  facts.divisor = divisor;
  facts.channels_last = channels_last;
  facts.index_bytes = index_bytes;
  facts.jump = index_bytes == 1 ? jump.data() : nullptr;
  facts.batch = batch;
  facts.channels = channels;
  auto* self = reinterpret_cast<PreparedObject*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  try {
    self->prepared = new pooltide::Prepared(facts, axes[0], axes[1], axes[2]);
  } catch (const std::exception&) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void destroy(PyObject* self) {
  delete reinterpret_cast<PreparedObject*>(self)->prepared;
  Py_TYPE(self)->tp_free(self);
}

PyObject* gathers(PyObject* self, PyObject*) {
  return PyBool_FromLong(reinterpret_cast<PreparedObject*>(self)->prepared->gathers());
}

PyMethodDef prepared_methods[] = {
    {"gathers", gathers, METH_NOARGS,
     "Whether cells look for themselves in the windows that hold them, with this instruction set."},
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL,
     "run(grad_output, indices, out, threads) -> None or (count, position, value) of bad indices.\n\n"
     "Arguments are arrays in the prepared layout, or addresses of such memory. NotImplemented where\n"
     "memory is not aligned, an array is not in native byte order or not writable, or out meets another."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject prepared_type = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "pooltide._native.Prepared";
  type.tp_basicsize = sizeof(PreparedObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_doc = "A problem in one layout, ready to run.";
  type.tp_methods = prepared_methods;
  type.tp_new = create;
  type.tp_dealloc = destroy;
  return type;
}();

PyObject* instruction_sets(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const pooltide::Kernels* k : pooltide::instruction_sets()) {
    PyObject* name = names ? PyUnicode_FromString(k->name) : nullptr;
    if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

PyObject* instruction_set(PyObject*, PyObject*) { return PyUnicode_FromString(pooltide::instruction_set()); }

PyObject* use_instruction_set(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  if (pooltide::use_instruction_set(text)) Py_RETURN_NONE;
  return PyErr_Format(PyExc_ValueError, "use_instruction_set: name is %R; it must be one of instruction_sets()", name);
}

// Fresh memory costs more than a kernel when it comes in 4 KB pages.
PyObject* use_huge_pages(PyObject*, PyObject* args) {
  PyObject* address;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(args, "On", &address, &bytes)) return nullptr;
  auto begin = reinterpret_cast<uintptr_t>(PyLong_AsVoidPtr(address));
  if (PyErr_Occurred()) return nullptr;
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = 4096;
  uintptr_t from = (begin + page - 1) / page * page, to = (begin + bytes) / page * page;
  if (to > from && madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE) == 0) Py_RETURN_TRUE;
#endif
  Py_RETURN_FALSE;
}

PyMethodDef methods[] = {
    {"instruction_sets", instruction_sets, METH_NOARGS, "Those that this machine has, the best last."},
    {"instruction_set", instruction_set, METH_NOARGS, "The one in use."},
    {"use_instruction_set", use_instruction_set, METH_O, "Use one of instruction_sets() from now on."},
    {"use_huge_pages", use_huge_pages, METH_VARARGS,
     "use_huge_pages(address, bytes) -> bool\n\nAsk for huge pages under memory not yet touched."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "pooltide's compiled code.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  if (PyType_Ready(&prepared_type) < 0) return nullptr;
  PyObject* module = PyModule_Create(&definition);
  if (module && PyModule_AddObjectRef(module, "Prepared", reinterpret_cast<PyObject*>(&prepared_type)) < 0)
    Py_CLEAR(module);
  if (module && !(pooltide::add_forward(module) && pooltide::add_shortcuts(module))) Py_CLEAR(module);
  return module;
}

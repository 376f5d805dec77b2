// The type pooltide._native.Forward: a pooling in one layout, ready to run.

#include "memory.h"

#include <exception>
#include <new>

#include "forward.h"

namespace {

using pooltide::Ints;
using pooltide::Memory;
using pooltide::Pooling;
using pooltide::PoolingArrays;
using pooltide::WindowTables;

struct ForwardObject {
  PyObject_HEAD
  pooltide::Forward* forward;
};

PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 4) return PyErr_Format(PyExc_TypeError, "run(input, out, indices, threads) got %zd arguments", n);
  const pooltide::Forward& forward = *reinterpret_cast<ForwardObject*>(self)->forward;
  const Pooling& p = forward.pooling();
  int itemsize = static_cast<int>(p.itemsize());
  int64_t windows = p.planes() * p.windows();
  Memory input, out, indices;
  constexpr int readable = pooltide::kAligned | pooltide::kNative, writable = readable | pooltide::kWriteable;
  if (!input.take(args[0], "input", p.planes() * p.cells(), itemsize, readable)) return nullptr;
  if (!out.take(args[1], "out", windows, itemsize, writable)) return nullptr;
  if (p.indexed && !indices.take(args[2], "indices", windows, p.index_bytes(), writable)) return nullptr;
  if (!input.usable || !out.usable || !indices.usable || out.meets(input) || out.meets(indices) ||
      indices.meets(input))
    Py_RETURN_NOTIMPLEMENTED;
  long threads = PyLong_AsLong(args[3]);
  if (threads == -1 && PyErr_Occurred()) return nullptr;
  bool starved = false;
  PoolingArrays arrays{input.data, out.data, indices.data};
  Py_BEGIN_ALLOW_THREADS
  try {
    forward.run(arrays, static_cast<int>(threads > 4096 ? 4096 : threads));
  } catch (const std::bad_alloc&) {
    starved = true;
  }
  Py_END_ALLOW_THREADS
  if (starved) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

// False with an exception set where a window holds a cell that the axis has not.
bool fits(int axis, const WindowTables& t) {
  for (int64_t o = 0; o < t.windows; o++)
    if (t.first[o] < 0 || t.count[o] < 0 || t.step < 1 || t.first[o] + (t.count[o] - 1) * t.step >= t.cells) {
      PyErr_Format(PyExc_ValueError, "axis %d: window %lld lies outside", axis, (long long)o);
      return false;
    }
  return true;
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  int largest, indexed, offsets, store, quotient, channels_last;
  double divisor;
  long long batch, channels, cells[3], steps[3];
  Ints t[9];
  if (!PyArg_ParseTuple(args, "pppiidpLL(LLL)(LLL)y*y*y*y*y*y*y*y*y*", &largest, &indexed, &offsets, &store, &quotient, &divisor,
                        &channels_last, &batch, &channels, &cells[0], &cells[1], &cells[2], &steps[0], &steps[1],
                        &steps[2], &t[0].view, &t[1].view, &t[2].view, &t[3].view, &t[4].view, &t[5].view, &t[6].view,
                        &t[7].view, &t[8].view))
    return nullptr;
  WindowTables axes[3];
  for (int i = 0; i < 3; i++) {
    const Ints *first = &t[3 * i], *count = first + 1, *divisors = first + 2;
    if (first->size() != count->size() || first->size() != divisors->size())
      return PyErr_Format(PyExc_ValueError, "axis %d: first, count and divisor differ in length", i);
    axes[i] = {first->data(), count->data(), divisors->data(), cells[i], first->size(), steps[i]};
    if (!fits(i, axes[i])) return nullptr;
  }
  Pooling facts;
  facts.largest = largest, facts.indexed = indexed, facts.offsets = offsets, facts.channels_last = channels_last;
  facts.store = static_cast<pooltide::Store>(store);
  facts.quotient = static_cast<pooltide::Quotient>(quotient);
  facts.divisor = divisor;
  facts.batch = batch, facts.channels = channels;
  auto* self = reinterpret_cast<ForwardObject*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  try {
    self->forward = new pooltide::Forward(facts, axes[0], axes[1], axes[2]);
  } catch (const std::exception&) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void destroy(PyObject* self) {
  delete reinterpret_cast<ForwardObject*>(self)->forward;
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef forward_methods[] = {
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL,
     "run(input, out, indices, threads)\n\n"
     "Arguments are arrays in the prepared layout, or addresses of such memory. NotImplemented where\n"
     "an array is not aligned, not in native byte order or not writable, or two of them meet."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject forward_type = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "pooltide._native.Forward";
  type.tp_basicsize = sizeof(ForwardObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_doc = "A pooling in one layout, ready to run.";
  type.tp_methods = forward_methods;
  type.tp_new = create;
  type.tp_dealloc = destroy;
  return type;
}();

}  // namespace

bool pooltide::add_forward(PyObject* module) {
  return PyType_Ready(&forward_type) == 0 &&
         PyModule_AddObjectRef(module, "Forward", reinterpret_cast<PyObject*>(&forward_type)) == 0;
}

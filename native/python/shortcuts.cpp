// Shortcuts: a call on small tensors that equals an earlier call goes directly to the kernel of that call.
//
// A small pooling call takes less time than reading a tensor's shape in Python. PyTorch provides a C function
// that describes a tensor (DLPack's exchange API). With it, all values that the checks of a call depend on
// become a key of integers. Calls with equal keys are equal, so the checks need not run again. For other calls
// `find` returns None, and Python handles them.

#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace pooltide {
namespace {

// DLPack's structs of version 1; their layout is part of its ABI.
struct DLTensor {
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DLPackExchange {
  uint32_t major, minor;
  void *previous, *allocator, *from_object, *to_object;
  int (*describe)(void* object, DLTensor* out);
  void* current_stream;
};
constexpr int32_t kCpu = 1, kCuda = 2;

// The key of a call: integers. Each tensor's sizes follow their number, so different calls have different keys.
// `valid` is false if the key would be too long, or if an argument has no integer form.
struct CallKey {
  static constexpr int kMost = 96;
  int64_t values[kMost];
  int count = 0;
  bool valid = true;

  void put(int64_t value) {
    if (count < kMost) values[count++] = value;
    else valid = false;
  }
  void put(const void* pointer) { put(static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer))); }
  void tensor(const DLTensor& t, bool typed) {
    put(t.ndim);
    put(static_cast<int64_t>(t.device_type) << 32 | t.device_id);
    if (typed) put(t.code << 16 | t.bits << 8 | (t.lanes != 1));
    for (int i = 0; i < t.ndim; i++) put(t.shape[i]);
    for (int i = 0; i < t.ndim; i++) put(t.strides[i]);
  }
  bool integer(PyObject* value) {
    if (!PyLong_CheckExact(value)) return valid = false;
    int overflow;
    put(PyLong_AsLongLongAndOverflow(value, &overflow));
    return valid = valid && !overflow;
  }
  // An attribute is None, True, False, an int, or a tuple or list of ints. True differs from 1; a float is not valid.
  void attribute(PyObject* value) {
    if (value == Py_None || value == Py_True || value == Py_False) {
      put(-1);
      put(value);
    } else if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
      put(PySequence_Fast_GET_SIZE(value));
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++)
        if (!integer(PySequence_Fast_GET_ITEM(value, i))) return;
    } else {
      put(-2);
      integer(value);
    }
  }
  size_t hash() const {
    uint64_t h = 0;
    for (int i = 0; i < count; i++) h = (h ^ static_cast<uint64_t>(values[i])) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return static_cast<size_t>(h);
  }
};

struct Entry {
  std::vector<int64_t> key;
  PyObject *function = nullptr, *kernel = nullptr, *model = nullptr;  // the address of `function` is in the key
};

constexpr size_t kEntries = 1024;  // a new call replaces the entry with the same hash

struct Shortcuts {
  PyObject_HEAD
  DLPackExchange* exchange;
  PyObject *tensor, *modes, *transforms, *grad_enabled, *forward_ad, *empty_like, *deterministic;
  PyObject *backend;  // the name of the environment variable that chooses a backend
  PyObject *requires_grad, *is_neg, *current_level, *one;
  std::vector<Entry>* entries;
};

bool is_zero(PyObject* found) {
  if (!found) return PyErr_Clear(), false;
  bool zero = PyObject_Not(found) == 1;
  Py_DECREF(found);
  return zero;
}

// Returns whether the call needs only its kernel: no dispatch mode, transform, forward AD, autograd, or lazy
// negation of grad_output.
bool needs_only_kernel(const Shortcuts* self, PyObject* grad_output) {
  if (!is_zero(PyObject_CallNoArgs(self->modes)) || !is_zero(PyObject_CallNoArgs(self->transforms))) return false;
  PyObject* level = PyObject_GetAttr(self->forward_ad, self->current_level);
  bool forward = !level || PyLong_AsLong(level) >= 0;
  Py_XDECREF(level);
  if (forward) return PyErr_Clear(), false;
  if (!is_zero(PyObject_GetAttr(grad_output, self->requires_grad)) &&
      !is_zero(PyObject_CallNoArgs(self->grad_enabled)))
    return false;
  return is_zero(PyObject_CallMethodNoArgs(grad_output, self->is_neg));
}

char* memory(const DLTensor& t) { return static_cast<char*>(t.data) + t.byte_offset; }
PyObject* address(const DLTensor& t) { return PyLong_FromVoidPtr(memory(t)); }
// Kernels need aligned elements; for others Python makes a copy.
bool aligned(const DLTensor& t) { return reinterpret_cast<uintptr_t>(memory(t)) * 8 % t.bits == 0; }

// The arguments function, result_layout, grad_output, input, indices, attributes, as their key and tensors.
struct Call {
  CallKey key;
  DLTensor grad{}, indices{};
  bool indexed = false;

  bool read(const Shortcuts* self, PyObject* const* args) {
    PyObject *grad_output = args[2], *input = args[3], *at = args[4], *attributes = args[5];
    auto exact = [&](PyObject* o) { return reinterpret_cast<PyObject*>(Py_TYPE(o)) == self->tensor; };
    indexed = at != Py_None;
    if (!exact(grad_output) || (indexed && !exact(at)) || !PyTuple_CheckExact(attributes)) return false;
    const char* backend = std::getenv(PyUnicode_AsUTF8(self->backend));
    if (backend && *backend) return false;  // the cached kernels are those of the default backend
    key.put(args[0]);
    key.put(args[1]);
    if (!describe(self, grad_output, grad) || !grad.data) return false;  // a zero tensor has no memory
    if (!aligned(grad)) return false;
    key.tensor(grad, true);
    if (exact(input)) {
      DLTensor shape{};
      if (!describe(self, input, shape)) return false;
      key.tensor(shape, false);
    } else if (PyTuple_CheckExact(input)) {
      key.put(-3);
      key.attribute(input);
    } else {
      return false;
    }
    if (indexed) {
      if (!describe(self, at, indices) || !aligned(indices)) return false;
      key.tensor(indices, true);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(attributes); i++) key.attribute(PyTuple_GET_ITEM(attributes, i));
    return key.valid;
  }

  static bool describe(const Shortcuts* self, PyObject* tensor, DLTensor& found) {
    if (self->exchange->describe(tensor, &found)) return PyErr_Clear(), false;
    return found.device_type == kCpu || found.device_type == kCuda;
  }
};

Entry& entry_for(const Shortcuts* self, const CallKey& key) { return (*self->entries)[key.hash() % kEntries]; }

PyObject* find(PyObject* object, PyObject* const* args, Py_ssize_t n) {
  if (n != 6) return PyErr_Format(PyExc_TypeError, "find takes 6 arguments, not %zd", n);
  auto* self = reinterpret_cast<Shortcuts*>(object);
  Call call;
  if (!call.read(self, args)) Py_RETURN_NONE;
  const CallKey& key = call.key;
  const Entry& entry = entry_for(self, key);
  if (entry.key.size() != static_cast<size_t>(key.count) ||
      std::memcmp(entry.key.data(), key.values, sizeof(int64_t) * key.count))
    Py_RETURN_NONE;
  // Take references before any Python code runs: another thread may replace the entry.
  PyObject *kernel = Py_NewRef(entry.kernel), *model = Py_NewRef(entry.model), *result = nullptr;
  bool usable = needs_only_kernel(self, args[2]);
  // In deterministic mode PyTorch fills new GPU tensors by a kernel of its own, so Python handles the call.
  if (usable && call.grad.device_type == kCuda) usable = is_zero(PyObject_CallNoArgs(self->deterministic));
  if (usable) result = PyObject_CallOneArg(self->empty_like, model);
  Py_DECREF(model);
  if (!usable) {
    Py_DECREF(kernel);
    Py_RETURN_NONE;
  }
  DLTensor out{};
  PyObject* fault = nullptr;
  if (result && self->exchange->describe(result, &out) == 0) {
    PyObject* given[] = {address(call.grad), call.indexed ? address(call.indices) : Py_NewRef(Py_None), address(out)};
    PyObject* all[] = {given[0], Py_None, given[1], given[2], self->one};
    if (given[0] && given[1] && given[2]) fault = PyObject_Vectorcall(kernel, all, 5, nullptr);
    for (PyObject* each : given) Py_XDECREF(each);
  }
  Py_DECREF(kernel);
  if (!fault) Py_CLEAR(result);
  if (fault && fault != Py_None) Py_SETREF(result, Py_NewRef(Py_None));  // Python runs the call again and reports the fault
  Py_XDECREF(fault);
  return result;
}

PyObject* add(PyObject* object, PyObject* const* args, Py_ssize_t n) {
  if (n != 8) return PyErr_Format(PyExc_TypeError, "add takes 8 arguments, not %zd", n);
  auto* self = reinterpret_cast<Shortcuts*>(object);
  Call call;
  if (!call.read(self, args)) Py_RETURN_NONE;
  Entry& entry = entry_for(self, call.key);
  Entry old = std::move(entry);
  entry.key.assign(call.key.values, call.key.values + call.key.count);
  entry.function = Py_NewRef(args[0]);
  entry.kernel = Py_NewRef(args[6]);
  entry.model = Py_NewRef(args[7]);
  for (PyObject* each : {old.function, old.kernel, old.model}) Py_XDECREF(each);
  Py_RETURN_NONE;
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *capsule, *objects[8];
  if (!PyArg_ParseTuple(args, "OOOOOOOOU", &capsule, &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                        &objects[5], &objects[6], &objects[7]))
    return nullptr;
  auto* exchange = static_cast<DLPackExchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  if (!exchange) return nullptr;
  if (exchange->major != 1) return PyErr_Format(PyExc_ValueError, "DLPack is of version %u; it must be 1", exchange->major);
  auto* self = reinterpret_cast<Shortcuts*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->exchange = exchange;
  PyObject** slots[] = {&self->tensor, &self->modes, &self->transforms, &self->grad_enabled, &self->forward_ad,
                        &self->empty_like, &self->deterministic, &self->backend};
  for (int i = 0; i < 8; i++) *slots[i] = Py_NewRef(objects[i]);
  self->requires_grad = PyUnicode_InternFromString("requires_grad");
  self->is_neg = PyUnicode_InternFromString("is_neg");
  self->current_level = PyUnicode_InternFromString("_current_level");
  self->one = PyLong_FromLong(1);
  self->entries = new (std::nothrow) std::vector<Entry>(kEntries);
  if (!self->requires_grad || !self->is_neg || !self->current_level || !self->one || !self->entries) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void destroy(PyObject* object) {
  auto* self = reinterpret_cast<Shortcuts*>(object);
  if (self->entries)
    for (Entry& entry : *self->entries)
      for (PyObject* each : {entry.function, entry.kernel, entry.model}) Py_XDECREF(each);
  delete self->entries;
  for (PyObject* each : {self->tensor, self->modes, self->transforms, self->grad_enabled, self->forward_ad,
                         self->empty_like, self->deterministic, self->backend, self->requires_grad,
                         self->is_neg, self->current_level, self->one})
    Py_XDECREF(each);
  Py_TYPE(object)->tp_free(object);
}

PyMethodDef methods[] = {
    {"find", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(find)), METH_FASTCALL,
     "find(function, result_layout, grad_output, input, indices, attributes) -> the result, or None if no equal\n"
     "call was added."},
    {"add", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(add)), METH_FASTCALL,
     "add(function, result_layout, grad_output, input, indices, attributes, kernel, model): add a call that passed\n"
     "its checks. Results are empty_like(model). The kernel takes the address of grad_output, None, the addresses of\n"
     "indices and result, and the number of threads."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject shortcuts_type = make_type({"pooltide._native.Shortcuts",
                                         "Kernels of earlier calls, by the metadata of their tensors.",
                                         sizeof(Shortcuts), methods, create, destroy});

}  // namespace

bool add_shortcuts(PyObject* module) {
  if (PyType_Ready(&shortcuts_type) < 0) return false;
  return PyModule_AddObjectRef(module, "Shortcuts", reinterpret_cast<PyObject*>(&shortcuts_type)) == 0;
}

}  // namespace pooltide

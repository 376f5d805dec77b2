// Shortcuts: small calls on tensors that were made before, and were found good, go straight to their kernel.
//
// A tiny pool costs less than to ask Python for a tensor's shape. PyTorch hands out a C function that
// describes a tensor (DLPack's exchange API); with it, all that a call's checks depend on becomes a few
// integers, and equal integers mean an equal call. What is not known here is left to Python.

#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

// DLPack 1: its layout is its ABI.
struct Described {
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct Exchange {
  uint32_t major, minor;
  void *older, *allocate, *from_object, *to_object;
  int (*describe)(void* object, Described* out);
  void* current_stream;
};
constexpr int32_t kCpu = 1, kCuda = 2;

// A call as integers. Sizes of tensors come with their number, so that no two calls read alike.
struct Words {
  static constexpr int kMost = 96;
  int64_t words[kMost];
  int count = 0;
  bool good = true;

  void put(int64_t word) {
    if (count < kMost) words[count++] = word;
    else good = false;
  }
  void put(const void* pointer) { put(static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer))); }
  void tensor(const Described& t, bool typed) {
    put(t.ndim);
    put(static_cast<int64_t>(t.device_type) << 32 | t.device_id);
    if (typed) put(t.code << 16 | t.bits << 8 | (t.lanes != 1));
    for (int i = 0; i < t.ndim; i++) put(t.shape[i]);
    for (int i = 0; i < t.ndim; i++) put(t.strides[i]);
  }
  bool integer(PyObject* value) {
    if (!PyLong_CheckExact(value)) return good = false;
    int overflow;
    put(PyLong_AsLongLongAndOverflow(value, &overflow));
    return good = good && !overflow;
  }
  // None, True, False, an int, or a tuple or list of ints; nothing else equals them here, not 2.0 nor 1.
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
    for (int i = 0; i < count; i++) h = (h ^ static_cast<uint64_t>(words[i])) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return static_cast<size_t>(h);
  }
};

struct Entry {
  std::vector<int64_t> words;
  PyObject *function = nullptr, *kernel = nullptr, *model = nullptr;  // function: its address is a word
};

constexpr size_t kEntries = 1024;  // a call whose place another one has takes it over

struct Shortcuts {
  PyObject_HEAD
  Exchange* exchange;
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

// Whether nothing but the kernel has a say in a call with this gradient.
bool plain(const Shortcuts* self, PyObject* grad_output) {
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

char* memory(const Described& t) { return static_cast<char*>(t.data) + t.byte_offset; }
PyObject* address(const Described& t) { return PyLong_FromVoidPtr(memory(t)); }
// Kernels need whole elements; Python copies what lies between them.
bool aligned(const Described& t) { return reinterpret_cast<uintptr_t>(memory(t)) * 8 % t.bits == 0; }

// function, hint, grad_output, input, indices, attributes
struct Call {
  Words words;
  Described grad{}, indices{};
  bool indexed = false;

  bool read(const Shortcuts* self, PyObject* const* args) {
    PyObject *grad_output = args[2], *input = args[3], *at = args[4], *attributes = args[5];
    auto exact = [&](PyObject* o) { return reinterpret_cast<PyObject*>(Py_TYPE(o)) == self->tensor; };
    indexed = at != Py_None;
    if (!exact(grad_output) || (indexed && !exact(at)) || !PyTuple_CheckExact(attributes)) return false;
    const char* backend = std::getenv(PyUnicode_AsUTF8(self->backend));
    if (backend && *backend) return false;  // the kernels kept here are those of the default backend
    words.put(args[0]);
    words.put(args[1]);
    if (!describe(self, grad_output, grad) || !grad.data) return false;  // a zero tensor has no memory
    if (!aligned(grad)) return false;
    words.tensor(grad, true);
    if (exact(input)) {
      Described shape{};
      if (!describe(self, input, shape)) return false;
      words.tensor(shape, false);
    } else if (PyTuple_CheckExact(input)) {
      words.put(-3);
      words.attribute(input);
    } else {
      return false;
    }
    if (indexed) {
      if (!describe(self, at, indices) || !aligned(indices)) return false;
      words.tensor(indices, true);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(attributes); i++) words.attribute(PyTuple_GET_ITEM(attributes, i));
    return words.good;
  }

  static bool describe(const Shortcuts* self, PyObject* tensor, Described& found) {
    if (self->exchange->describe(tensor, &found)) return PyErr_Clear(), false;
    return found.device_type == kCpu || found.device_type == kCuda;
  }
};

Entry& place(const Shortcuts* self, const Words& words) { return (*self->entries)[words.hash() % kEntries]; }

PyObject* find(PyObject* object, PyObject* const* args, Py_ssize_t n) {
  if (n != 6) return PyErr_Format(PyExc_TypeError, "find takes 6 arguments, not %zd", n);
  auto* self = reinterpret_cast<Shortcuts*>(object);
  Call call;
  if (!call.read(self, args)) Py_RETURN_NONE;
  const Words& words = call.words;
  const Entry& entry = place(self, words);
  if (entry.words.size() != static_cast<size_t>(words.count) ||
      std::memcmp(entry.words.data(), words.words, sizeof(int64_t) * words.count))
    Py_RETURN_NONE;
  // Before any Python runs, which may let another thread take the place over.
  PyObject *kernel = Py_NewRef(entry.kernel), *model = Py_NewRef(entry.model), *result = nullptr;
  bool good = plain(self, args[2]);
  // Deterministic results on a GPU PyTorch would fill, with a kernel of its own.
  if (good && call.grad.device_type == kCuda) good = is_zero(PyObject_CallNoArgs(self->deterministic));
  if (good) result = PyObject_CallOneArg(self->empty_like, model);
  Py_DECREF(model);
  if (!good) {
    Py_DECREF(kernel);
    Py_RETURN_NONE;
  }
  Described out{};
  PyObject* fault = nullptr;
  if (result && self->exchange->describe(result, &out) == 0) {
    PyObject* given[] = {address(call.grad), call.indexed ? address(call.indices) : Py_NewRef(Py_None), address(out)};
    PyObject* all[] = {given[0], Py_None, given[1], given[2], self->one};
    if (given[0] && given[1] && given[2]) fault = PyObject_Vectorcall(kernel, all, 5, nullptr);
    for (PyObject* each : given) Py_XDECREF(each);
  }
  Py_DECREF(kernel);
  if (!fault) Py_CLEAR(result);
  if (fault && fault != Py_None) Py_SETREF(result, Py_NewRef(Py_None));  // Python finds the words for it
  Py_XDECREF(fault);
  return result;
}

PyObject* add(PyObject* object, PyObject* const* args, Py_ssize_t n) {
  if (n != 8) return PyErr_Format(PyExc_TypeError, "add takes 8 arguments, not %zd", n);
  auto* self = reinterpret_cast<Shortcuts*>(object);
  Call call;
  if (!call.read(self, args)) Py_RETURN_NONE;
  Entry& entry = place(self, call.words);
  Entry old = std::move(entry);
  entry.words.assign(call.words.words, call.words.words + call.words.count);
  entry.function = Py_NewRef(args[0]);
  entry.kernel = Py_NewRef(args[6]);
  entry.model = Py_NewRef(args[7]);
  for (PyObject* each : {old.function, old.kernel, old.model}) Py_XDECREF(each);
  Py_RETURN_NONE;
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *capsule, *held[8];
  if (!PyArg_ParseTuple(args, "OOOOOOOOU", &capsule, &held[0], &held[1], &held[2], &held[3], &held[4], &held[5],
                        &held[6], &held[7]))
    return nullptr;
  auto* exchange = static_cast<Exchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  if (!exchange) return nullptr;
  if (exchange->major != 1) return PyErr_Format(PyExc_ValueError, "DLPack is of version %u; it must be 1", exchange->major);
  auto* self = reinterpret_cast<Shortcuts*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->exchange = exchange;
  PyObject** slots[] = {&self->tensor, &self->modes, &self->transforms, &self->grad_enabled, &self->forward_ad,
                        &self->empty_like, &self->deterministic, &self->backend};
  for (int i = 0; i < 8; i++) *slots[i] = Py_NewRef(held[i]);
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
     "find(function, hint, grad_output, input, indices, attributes) -> the result, or None where it is not known."},
    {"add", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(add)), METH_FASTCALL,
     "add(function, hint, grad_output, input, indices, attributes, kernel, model): a call found good; results\n"
     "lie as empty_like(model), and kernel takes the address of grad_output, None, the addresses of indices and result, and threads."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject shortcuts_type = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "pooltide._native.Shortcuts";
  type.tp_basicsize = sizeof(Shortcuts);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_doc = "Small calls on tensors, known by their metadata.";
  type.tp_methods = methods;
  type.tp_new = create;
  type.tp_dealloc = destroy;
  return type;
}();

}  // namespace

namespace pooltide {

bool add_shortcuts(PyObject* module) {
  if (PyType_Ready(&shortcuts_type) < 0) return false;
  return PyModule_AddObjectRef(module, "Shortcuts", reinterpret_cast<PyObject*>(&shortcuts_type)) == 0;
}

}  // namespace pooltide

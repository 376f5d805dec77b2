// Shortcuts: a call on tensors that equals an earlier call goes directly to the kernel of that call.
//
// A small pooling call takes less time than reading a tensor's shape in Python. PyTorch provides a C function
// that describes a tensor (DLPack's exchange API). With it, all values that the checks of a call depend on
// become a key of integers. Calls with equal keys are equal, so these checks need not run again. The keys, as bytes,
// are in the cache that all of pooltide shares (cache.py). For other calls `find` returns None, and
// Python handles them.

#include "call_key.h"

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

// The Python objects that `find` uses, in the order of the constructor's arguments.
enum Object {
  kTensor,         // the type torch.Tensor
  kModes,          // () -> the number of dispatch modes
  kPreDispatch,    // () -> whether a trace before dispatch may follow the call
  kTransforms,     // () -> whether torch.func transforms the call
  kGradEnabled,    // () -> bool
  kForwardAd,      // the module torch.autograd.forward_ad
  kEmptyLike,      // (tensor) -> tensor
  kDeterministic,  // () -> bool
  kIsNeg,          // (tensor) -> bool
  kIsCow,          // (tensor) -> whether its memory is shared until one writes to it
  kStorage,        // (tensor) -> storage
  kOffset,         // (tensor) -> the elements of the storage before the tensor
  kIsInference,    // (tensor) -> bool
  kMarkWritten,    // (tensor): tells autograd that its values change
  kThreads,        // () -> how many threads a kernel may use
  kCalls,          // the first generation of the cache: bytes -> (function, kernel, model)
  kEnvironment,    // the dictionary of environment variables: bytes -> bytes
  kBackend,        // the name of the variable that chooses a backend
  kGiven,
  kRequiresGrad = kGiven,
  kCurrentLevel,
  kObjects
};

struct Shortcuts {
  PyObject_HEAD
  DLPackExchange* exchange;
  PyObject* objects[kObjects];
  PyObject* operator[](Object at) const { return objects[at]; }
};

PyObject* apply(PyObject* function, PyObject* argument) { return PyObject_CallFunctionObjArgs(function, argument, nullptr); }

bool differentiated(const Shortcuts& self, PyObject* tensor) {
  return !is_zero(PyObject_GetAttr(tensor, self[kRequiresGrad])) && !is_zero(PyObject_CallNoArgs(self[kGradEnabled]));
}

// Returns whether the call needs only its kernel: no dispatch mode, transform, forward AD or autograd is active.
// `patched` is true if the call is a patched function of PyTorch: then autograd must not track the input either.
bool needs_only_kernel(const Shortcuts& self, PyObject* grad_output, PyObject* input, bool patched) {
  for (Object active : {kModes, kPreDispatch, kTransforms})
    if (!is_zero(PyObject_CallNoArgs(self[active]))) return false;
  PyObject* level = PyObject_GetAttr(self[kForwardAd], self[kCurrentLevel]);
  bool forward = !level || PyLong_AsLong(level) >= 0;
  Py_XDECREF(level);
  if (forward) return PyErr_Clear(), false;
  return !differentiated(self, grad_output) && !(patched && differentiated(self, input));
}

// Returns whether the tensor's memory holds its values: the storage has all elements, and no lazy negation is left.
// Every call checks it: a storage can shrink at any time.
bool in_memory(const Shortcuts& self, PyObject* tensor, const DLTensor& t) {
  if (!is_zero(apply(self[kIsNeg], tensor))) return false;
  int64_t last = 0;
  for (int i = 0; i < t.ndim; i++) {
    if (t.shape[i] == 0) return true;
    last += (t.shape[i] - 1) * t.strides[i];
  }
  if (!t.data) return false;  // lazy zeros have a size, but no memory
  PyObject *storage = apply(self[kStorage], tensor), *offset = apply(self[kOffset], tensor);
  int64_t have = storage ? PyObject_Size(storage) : -1, before = offset ? PyLong_AsLongLong(offset) : -1;
  Py_XDECREF(storage);
  Py_XDECREF(offset);
  if (have < 0 || before < 0) return PyErr_Clear(), false;
  return (before + last + 1) * (t.bits / 8) <= have;
}

char* memory(const DLTensor& t) { return static_cast<char*>(t.data) + t.byte_offset; }
int64_t size(const DLTensor& t) {
  int64_t bytes = t.bits / 8;
  for (int i = 0; i < t.ndim; i++) bytes *= t.shape[i];
  return bytes;
}
// Kernels need aligned elements; for others Python makes a copy.
bool aligned(const DLTensor& t) { return reinterpret_cast<uintptr_t>(memory(t)) * 8 % t.bits == 0; }

// The arguments function, result_layout, grad_output, input, indices, attributes, out, as their key and tensors.
struct Call {
  CallKey key;
  DLTensor grad{}, indices{}, out{};
  bool indexed = false, fresh = true;

  bool read(const Shortcuts& self, PyObject* const* args) {
    PyObject *grad_output = args[2], *input = args[3], *at = args[4], *attributes = args[5];
    auto exact = [&](PyObject* o) { return reinterpret_cast<PyObject*>(Py_TYPE(o)) == self[kTensor]; };
    indexed = at != Py_None, fresh = args[6] == Py_None;
    if (!exact(grad_output) || (indexed && !exact(at)) || !PyTuple_CheckExact(attributes)) return false;
    PyObject* backend = PyDict_GetItemWithError(self[kEnvironment], self[kBackend]);
    if (!backend && PyErr_Occurred()) return PyErr_Clear(), false;
    if (backend && PyObject_IsTrue(backend)) return false;  // the cached kernels are those of the default backend
    key.put(args[0]);
    key.put(args[1]);
    if (!describe(self, grad_output, grad) || !grad.data || !aligned(grad)) return false;  // no data: it is empty, or lazy zeros
    put(grad, true);
    if (exact(input)) {
      DLTensor shape{};
      if (!describe(self, input, shape)) return false;
      put(shape, false);
    } else if (PyTuple_CheckExact(input)) {
      key.put(-3);
      key.attribute(input);
    } else {
      return false;
    }
    if (indexed) {
      if (!describe(self, at, indices) || !aligned(indices)) return false;
      put(indices, true);
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(attributes); i++) key.attribute(PyTuple_GetItem(attributes, i));
    if (!fresh) {
      if (!exact(args[6]) || !describe(self, args[6], out) || !aligned(out)) return false;
      key.put(-4);
      put(out, true);
    }
    return key.valid;
  }

  void put(const DLTensor& t, bool typed) {
    key.tensor(t.device_type, t.device_id, typed ? t.code << 9 | t.bits << 1 | (t.lanes != 1) : 0, t.ndim, t.shape, t.strides);
  }

  static bool describe(const Shortcuts& self, PyObject* tensor, DLTensor& found) {
    if (!is_zero(apply(self[kIsCow], tensor))) return false;  // PyTorch copies shared memory before it tells the address
    if (self.exchange->describe(tensor, &found)) return PyErr_Clear(), false;
    return found.device_type == kCpu || found.device_type == kCuda;
  }
};

bool overlap(const DLTensor& a, const DLTensor& b) {
  return memory(a) < memory(b) + size(b) && memory(b) < memory(a) + size(a);
}

// Returns whether the kernel may write to the call's `out`. Tensors that have a shortcut are dense.
bool may_write(const Shortcuts& self, PyObject* out, const Call& call) {
  return in_memory(self, out, call.out) && !differentiated(self, out) && !overlap(call.out, call.grad) &&
         !(call.indexed && overlap(call.out, call.indices)) && is_zero(apply(self[kIsInference], out));
}

// Returns the tensor for the result: `out`, or a new one that is like `model`. nullptr: an exception is set.
PyObject* result_of(const Shortcuts& self, const Call& call, PyObject* out, PyObject* model) {
  if (call.fresh) return apply(self[kEmptyLike], model);
  PyObject* done = apply(self[kMarkWritten], out);
  Py_XDECREF(done);
  return done ? Py_NewRef(out) : nullptr;
}

// Runs the call with the kernel and the model of `entry`. Returns the result, or None if Python must run the call.
PyObject* run(const Shortcuts& self, PyObject* const* args, const Call& call, PyObject* entry) {
  bool usable = PyTuple_CheckExact(entry) && PyTuple_Size(entry) == 3 &&
                needs_only_kernel(self, args[2], args[3], PyUnicode_CheckExact(args[1])) &&
                in_memory(self, args[2], call.grad) && (!call.indexed || in_memory(self, args[4], call.indices)) &&
                (call.fresh || may_write(self, args[6], call));
  // In deterministic mode PyTorch fills new tensors. That takes long, so Python handles the call, except small ones.
  if (usable && call.fresh && !is_quick(problem_run_by(PyTuple_GetItem(entry, 1))))
    usable = is_zero(PyObject_CallNoArgs(self[kDeterministic]));
  if (!usable) Py_RETURN_NONE;
  PyObject *result = result_of(self, call, args[6], PyTuple_GetItem(entry, 2)), *fault = nullptr;
  DLTensor out{};
  if (result && self.exchange->describe(result, &out) == 0) {
    if (call.fresh && out.device_type == kCpu) request_huge_pages(memory(out), size(out));
    Arrays arrays;
    arrays.grad = memory(call.grad), arrays.indices = call.indexed ? memory(call.indices) : nullptr, arrays.out = memory(out);
    fault = run_kernel(PyTuple_GetItem(entry, 1), arrays, self[kThreads]);
  }
  if (!fault) Py_CLEAR(result);
  if (fault && fault != Py_None) {  // Python runs the call again and reports the fault
    Py_DECREF(result);
    result = Py_NewRef(Py_None);
  }
  Py_XDECREF(fault);
  return result;
}

PyObject* find(PyObject* object, PyObject* const* args, Py_ssize_t n) {
  if (n != 7) return PyErr_Format(PyExc_TypeError, "find takes 7 arguments, not %zd", n);
  const Shortcuts& self = *reinterpret_cast<Shortcuts*>(object);
  Call call;
  if (!call.read(self, args)) Py_RETURN_NONE;
  PyObject* key = call.key.bytes();
  if (!key) return nullptr;
  PyObject* entry = PyDict_GetItemWithError(self[kCalls], key);
  Py_DECREF(key);
  if (!entry) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
  Py_INCREF(entry);  // another thread may remove the entry
  PyObject* result = run(self, args, call, entry);
  Py_DECREF(entry);
  return result;
}

PyObject* key(PyObject* object, PyObject* const* args, Py_ssize_t n) {
  if (n != 7) return PyErr_Format(PyExc_TypeError, "key takes 7 arguments, not %zd", n);
  Call call;
  if (!call.read(*reinterpret_cast<Shortcuts*>(object), args)) Py_RETURN_NONE;
  return call.key.bytes();
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  if (PyTuple_Size(args) != 1 + kGiven || !PyDict_Check(PyTuple_GetItem(args, 1 + kCalls)) ||
      !PyDict_CheckExact(PyTuple_GetItem(args, 1 + kEnvironment)))
    return PyErr_Format(PyExc_TypeError, "Shortcuts takes a DLPack exchange API and %d objects, see shortcuts.cpp", kGiven);
  auto* exchange = static_cast<DLPackExchange*>(PyCapsule_GetPointer(PyTuple_GetItem(args, 0), "dlpack_exchange_api"));
  if (!exchange) return nullptr;
  if (exchange->major != 1) return PyErr_Format(PyExc_ValueError, "DLPack is of version %u; it must be 1", exchange->major);
  auto* self = reinterpret_cast<Shortcuts*>(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  self->exchange = exchange;
  for (int i = 0; i < kGiven; i++) self->objects[i] = Py_NewRef(PyTuple_GetItem(args, 1 + i));
  self->objects[kRequiresGrad] = PyUnicode_InternFromString("requires_grad");
  self->objects[kCurrentLevel] = PyUnicode_InternFromString("_current_level");
  for (PyObject* each : self->objects)
    if (!each) {
      Py_DECREF(self);
      return PyErr_NoMemory();
    }
  return reinterpret_cast<PyObject*>(self);
}

void destroy(PyObject* object) {
  for (PyObject* each : reinterpret_cast<Shortcuts*>(object)->objects) Py_XDECREF(each);
  free_object(object);
}

PyMethodDef methods[] = {
    {"find", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(find)), METH_FASTCALL,
     "find(function, result_layout, grad_output, input, indices, attributes, out) -> the result, or None if the cache\n"
     "has no equal call. A result_layout that is a string: the call is one of PyTorch's, patched.\n\n"
     "The cache has, under the key of a call, a tuple: function, kernel, model. New results are empty_like(model). The\n"
     "kernel takes the address of grad_output, None, the addresses of indices and result, and the number of threads."},
    {"key", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(key)), METH_FASTCALL,
     "key(function, result_layout, grad_output, input, indices, attributes, out) -> bytes, or None for a call that\n"
     "cannot have a shortcut. The key has the addresses of function and result_layout: the cache must keep them alive."},
    {nullptr, nullptr, 0, nullptr},
};

constexpr TypeParts shortcuts_type = {"pooltide._native.Shortcuts",
                                      "Kernels of earlier calls, by the metadata of their tensors.",
                                      sizeof(Shortcuts), methods, create, destroy};

}  // namespace

bool add_shortcuts(PyObject* module) { return add_type(module, shortcuts_type); }

}  // namespace pooltide

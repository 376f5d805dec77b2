// Kernels for PyTorch's own operators, which PyTorch's dispatcher calls with no Python in between.
//
// PyTorch's stable C interface registers a C function for an operator and a dispatch key. The function gets the
// arguments as 64-bit values: handles of tensors and lists, and numbers. It owns the handles. As in shortcuts.cpp, the
// metadata of the arguments become a key, and the cache has the kernel of an equal call. Any other call goes to a
// Python function, with the key, under which that function may add the kernel. PyTorch's C functions are looked up at
// run time, so that no build needs PyTorch.

#include "call_key.h"

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

// PyTorch's exception for a Python error: its code catches this type by its name and reads these members.
// torch/csrc/Exceptions.h has it. Python uses this file only with releases of PyTorch that were tested.
struct python_error : std::exception {
  python_error() {
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    message = "an error of Python";
  }
  python_error(const python_error&) = delete;
  ~python_error() override {
    PyGILState_STATE gil = PyGILState_Ensure();
    for (PyObject* each : {type, value, traceback}) Py_XDECREF(each);
    PyGILState_Release(gil);
  }
  const char* what() const noexcept override { return message.c_str(); }

  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  std::string message;
};

namespace pooltide {
namespace {

using Value = uint64_t;  // PyTorch's StableIValue
using Handle = void*;    // of a tensor, a list or a library; a tensor's points at a pointer to its TensorImpl
using Kernel = void (*)(Value*, uint64_t, uint64_t);

// PyTorch's C functions, in the order of kSymbols. Those with a status return 0 for success.
struct Api {
  int32_t (*library_init_impl)(const char* space, const char* key, const char* file, uint32_t line, Handle*);
  int32_t (*library_impl)(Handle library, const char* name, Kernel, uint64_t version);
  uint64_t (*abi_version)();
  int32_t (*is_defined)(Handle, bool*);
  int32_t (*dtype)(Handle, int32_t*);
  int32_t (*device_type)(Handle, int32_t*);
  int32_t (*device_index)(Handle, int32_t*);
  int32_t (*dim)(Handle, int64_t*);
  int32_t (*sizes)(Handle, int64_t**);
  int32_t (*strides)(Handle, int64_t**);
  int32_t (*const_data)(Handle, const void**);
  int32_t (*mutable_data)(Handle, void**);
  int32_t (*storage_bytes)(Handle, int64_t*);
  int32_t (*storage_offset)(Handle, int64_t*);
  size_t (*element_size)(int32_t dtype);
  int32_t (*empty_strided)(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, Handle*);
  int32_t (*delete_tensor)(Handle);
  int32_t (*copy)(Handle to, Handle from, int32_t non_blocking);
  int32_t (*list_size)(Handle, size_t*);
  int32_t (*list_item)(Handle, size_t, Value*);
  int32_t (*delete_list)(Handle);
  bool (*grad_enabled)();
  bool (*requires_grad)(const void* tensor_impl);
  bool (*key_included)(uint16_t key);
};
constexpr const char* kSymbols[] = {
    "aoti_torch_library_init_impl", "torch_library_impl", "aoti_torch_abi_version", "aoti_torch_is_defined",
    "aoti_torch_get_dtype", "aoti_torch_get_device_type",
    "aoti_torch_get_device_index", "aoti_torch_get_dim", "aoti_torch_get_sizes", "aoti_torch_get_strides",
    "torch_get_const_data_ptr", "torch_get_mutable_data_ptr", "aoti_torch_get_storage_size",
    "aoti_torch_get_storage_offset", "aoti_torch_dtype_element_size", "aoti_torch_empty_strided",
    "aoti_torch_delete_tensor_object", "aoti_torch_copy_", "torch_list_size", "torch_list_get_item", "torch_delete_list",
    "aoti_torch_grad_mode_is_enabled", "_ZNK3c1010TensorImpl13requires_gradEv",
    "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE"};
constexpr int kFunctions = sizeof(kSymbols) / sizeof(*kSymbols);
static_assert(sizeof(Api) == kFunctions * sizeof(void*), "one symbol for each function");
Api api;

// Python's objects, in the order of `setup`'s arguments.
enum Object {
  kModes,          // () -> the number of dispatch modes
  kTransforms,     // () -> whether torch.func transforms the call
  kForwardAd,      // the module torch.autograd.forward_ad
  kDeterministic,  // () -> bool
  kThreads,        // () -> how many threads a kernel may use
  kCalls,          // the first generation of the cache: bytes -> (owner, kernel, layouts of the results)
  kEnvironment,    // the dictionary of environment variables: bytes -> bytes
  kBackend,        // the name of the variable that chooses a backend
  kToTensor,       // ([capsule of a handle]) -> [tensor]; takes the handle
  kFromTensor,     // (tensor) -> capsule of a new handle
  kGiven,
  kCurrentLevel = kGiven,
  kObjects
};
PyObject* objects[kObjects];
PyObject* watcher;                // nullptr, or what is called with the owner of each entry that computes a call
bool active[2];                   // whether forwards, and gradients, are patched
// nullptr, or the input whose pool is to return offsets: the address of its TensorImpl, or of its data where PyTorch
// pools a view of it, as in 1-D.
thread_local const void* wants_offsets;
int64_t keys_at;                  // where a TensorImpl has its set of dispatch keys
uint16_t python_dispatcher;       // the key that is on while a trace before dispatch may follow a call
uint64_t plain_keys[4];           // the sets of normal tensors, on the CPU and on CUDA, then the same in inference mode

// What a function does, and for which operator.
enum Role { kDevice, kDropsIndices, kReturnsIndices, kGradient };
struct Slot {
  Role role;
  int results;
  std::string arguments;  // for each: t, a tensor; l, a list of ints; b, a bool; o, an optional int
  void* recorded;          // nullptr, or PyTorch's function for calls that autograd records (see `record`)
  uint64_t keys;           // what that of kReturnsIndices takes
  PyObject* python;        // (key or None, offsets, *arguments) -> result
  int64_t number;          // of the pool in keys: equal for its keys of dispatch
  bool one_axis;           // PyTorch pools a view of the input, with two axes
};
constexpr int kSlots = 128;
Slot slots[kSlots];
int used = 0;

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

// Sets Python's current error aside, so that code may run that must not see it.
struct ErrorAside {
  PyObject *type, *value, *traceback;
  ErrorAside() { PyErr_Fetch(&type, &value, &traceback); }
  ~ErrorAside() { PyErr_Restore(type, value, traceback); }
};

const void* impl_of(Handle tensor) { return *static_cast<void**>(tensor); }

// Returns whether a pool of this tensor is to return offsets, and drops the wish if so.
bool takes_wish(Handle tensor) {
  const void* data = nullptr;
  if (!wants_offsets) return false;
  if (impl_of(tensor) != wants_offsets && (api.const_data(tensor, &data) || data != wants_offsets)) return false;
  wants_offsets = nullptr;
  return true;
}

// Returns whether it has the dispatch keys of a normal tensor: it is no subclass, not sparse, quantized or nested, and not
// lazily negated.
bool is_plain(Handle tensor) {
  uint64_t keys;
  std::memcpy(&keys, *static_cast<char**>(tensor) + keys_at, sizeof(keys));
  return std::find(std::begin(plain_keys), std::end(plain_keys), keys) != std::end(plain_keys);
}

struct Facts {
  int32_t dtype, device, number;
  int64_t dims, *sizes, *strides, bytes, offset;
  size_t itemsize;
  const void* data;

  // Reads what a kernel must know. Returns false for a tensor that only Python or PyTorch can handle.
  bool read(Handle tensor) {
    bool defined = false;
    if (api.is_defined(tensor, &defined) || !defined) return false;
    if (!is_plain(tensor)) return false;
    if (api.dtype(tensor, &dtype) || api.device_type(tensor, &device) || api.device_index(tensor, &number)) return false;
    if (api.dim(tensor, &dims) || dims > 5 || api.sizes(tensor, &sizes) || api.strides(tensor, &strides)) return false;
    if (api.storage_bytes(tensor, &bytes) || api.storage_offset(tensor, &offset)) return false;
    itemsize = api.element_size(dtype);
    int64_t last = offset;
    for (int64_t i = 0; i < dims; i++) {
      if (sizes[i] == 0) return false;
      last += (sizes[i] - 1) * strides[i];
    }
    if ((last + 1) * static_cast<int64_t>(itemsize) > bytes || api.const_data(tensor, &data)) return false;
    return data && reinterpret_cast<uintptr_t>(data) % itemsize == 0;
  }
};

constexpr size_t kLongest = 3;  // of a list: a value for each axis

// The arguments of a call; `free_arguments` frees their handles.
struct Call {
  const Slot& slot;
  Value* stack;
  int count;
  Facts facts[3];
  int64_t lists[8][kLongest];
  size_t lengths[8];
  CallKey key;

  Call(const Slot& s, Value* v) : slot(s), stack(v), count(static_cast<int>(s.arguments.size())) {}

  Handle handle(int i) const { return reinterpret_cast<Handle>(stack[i]); }
  char kind(int i) const { return slot.arguments[i]; }

  // Puts the tensors and the attributes into the key. Returns false if there can be no key.
  bool read(int64_t number, bool offsets, bool tracked) {
    key.put(tracked ? -6 : -5);
    key.put(number << 1 | offsets);
    Facts* next = facts;
    for (int i = 0; i < count; i++) {
      auto value = static_cast<int64_t>(stack[i]);
      if (kind(i) == 't') {
        if (!next->read(handle(i))) return false;
        key.tensor(next->device, next->number, next->dtype, next->dims, next->sizes, next->strides);
        next++;
      } else if (kind(i) == 'b') {
        key.put(value & 1);
      } else if (kind(i) == 'o') {
        key.put(value ? -2 : -1);
        if (value) key.put(static_cast<int64_t>(*reinterpret_cast<Value*>(value)));
      } else if (!put_list(i)) {
        return false;
      }
    }
    return key.valid;
  }

  bool put_list(int i) {
    size_t& size = lengths[i];
    if (api.list_size(handle(i), &size) || size > kLongest) return false;
    key.put(static_cast<int64_t>(size));
    for (size_t j = 0; j < size; j++) {
      Value value = 0;
      if (api.list_item(handle(i), j, &value)) return false;
      key.put(lists[i][j] = static_cast<int64_t>(value));
    }
    return true;
  }

  void free_arguments() {
    for (int i = 0; i < count; i++) {
      if (kind(i) == 't') api.delete_tensor(handle(i));
      else if (kind(i) == 'l') api.delete_list(handle(i));
      else if (kind(i) == 'o') delete reinterpret_cast<Value*>(stack[i]);  // PyTorch allocates it with new
    }
  }
};

// Returns whether a mode, a transform or forward AD follows the calls of this thread.
bool followed() {
  if (api.key_included(python_dispatcher)) return true;
  for (Object each : {kModes, kTransforms})
    if (!is_zero(PyObject_CallNoArgs(objects[each]))) return true;
  PyObject* level = PyObject_GetAttr(objects[kForwardAd], objects[kCurrentLevel]);
  bool forward = !level || PyLong_AsLong(level) >= 0;
  Py_XDECREF(level);
  if (forward) PyErr_Clear();
  return forward;
}

// Returns the cached entry of a key, a new reference, or nullptr. No exception is set.
PyObject* entry_of(PyObject* key) {
  PyObject* backend = PyDict_GetItemWithError(objects[kEnvironment], objects[kBackend]);
  if (!backend) PyErr_Clear();
  if (backend && PyObject_IsTrue(backend)) return nullptr;  // the cached kernels are those of the default backend
  PyObject* entry = PyDict_GetItemWithError(objects[kCalls], key);
  if (!entry) PyErr_Clear();
  return Py_XNewRef(entry);
}

// Runs the kernel of an entry on memory. Returns whether the results are complete; Python's error is set only if the
// kernel was interrupted.
bool ran(PyObject* kernel, const Arrays& arrays) {
  // Asking PyTorch for its number of threads sets it in a new thread, for all that follows, as PyTorch's pools do.
  thread_local bool asked = false;
  if (is_quick(problem_run_by(kernel)) && !std::exchange(asked, true)) Py_XDECREF(PyObject_CallNoArgs(objects[kThreads]));
  PyObject* fault = run_kernel(kernel, arrays, objects[kThreads]);
  if (!fault && !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_Clear();
  bool done = fault == Py_None;
  Py_XDECREF(fault);
  return done;
}

// Allocates the results and runs the kernel of an entry. Writes the results to the stack and returns true, or returns
// false with the arguments unchanged: with Python's error set if the call must raise it, else Python must compute the call.
bool compute(Call& call, PyObject* entry) {
  if (!PyTuple_CheckExact(entry) || PyTuple_Size(entry) != 3) return false;
  PyObject *kernel = PyTuple_GetItem(entry, 1), *layouts = PyTuple_GetItem(entry, 2);
  // In deterministic mode PyTorch fills new tensors. That takes long, so Python handles the call, except small ones.
  if (!is_quick(problem_run_by(kernel)) && !is_zero(PyObject_CallNoArgs(objects[kDeterministic]))) return false;
  char* begin;
  Py_ssize_t length;
  if (PyBytes_AsStringAndSize(layouts, &begin, &length)) return PyErr_Clear(), false;
  const auto *at = reinterpret_cast<const int64_t*>(begin), *end = at + static_cast<size_t>(length) / sizeof(*at);
  const Facts& first = call.facts[0];
  Handle results[2] = {}, copies[2] = {};
  void* memory[2] = {};
  const void* sources[2] = {first.data, call.facts[2].data};  // `facts[1]` is the input of a gradient, which has no values
  bool done = true;
  for (int i = 0; i < call.slot.results && done; i++) {  // dtype (-1: that of the first tensor), bytes, dims, sizes, strides
    int64_t dims = at[2];
    done = !api.empty_strided(dims, at + 3, at + 3 + dims, static_cast<int32_t>(at[0] < 0 ? first.dtype : at[0]), first.device, first.number, &results[i]) &&
           !api.mutable_data(results[i], &memory[i]);
    if (done && call.facts[0].device == 0) request_huge_pages(memory[i], at[1]);
    at += 3 + 2 * dims;
  }
  while (at < end && done) {  // tensors in another layout than the kernel's: number (0 or 1), bytes, dims, sizes, strides
    int64_t i = at[0], dims = at[2];
    const Facts& from = call.facts[2 * i];
    PyThreadState* state = PyEval_SaveThread();
    done = !api.empty_strided(dims, at + 3, at + 3 + dims, from.dtype, from.device, from.number, &copies[i]) &&
           !api.copy(copies[i], call.handle(i ? call.count - 1 : 0), 0) && !api.const_data(copies[i], &sources[i]);
    PyEval_RestoreThread(state);
    at += 3 + 2 * dims;
  }
  if (done) {
    Arrays arrays;
    arrays.out = memory[0];
    if (call.slot.role == kGradient) {
      arrays.grad = sources[0];
      arrays.indices = call.kind(call.count - 1) == 't' && call.count > 2 ? const_cast<void*>(sources[1]) : nullptr;
    } else {
      arrays.input = sources[0];
      arrays.indices = memory[1];
    }
    done = ran(kernel, arrays);
  }
  for (Handle each : copies)
    if (each) api.delete_tensor(each);
  if (!done) {
    ErrorAside error;
    for (Handle each : results)
      if (each) api.delete_tensor(each);
    return false;
  }
  if (watcher) {
    PyObject* told = PyObject_CallFunctionObjArgs(watcher, PyTuple_GetItem(entry, 0), nullptr);
    if (!told) PyErr_Clear();
    Py_XDECREF(told);
  }
  call.free_arguments();
  for (int i = 0; i < call.slot.results; i++) call.stack[i] = reinterpret_cast<Value>(results[i]);
  return true;
}

// Takes an argument of the stack as a Python object: a tensor, a list of ints, a bool, an int or None.
PyObject* taken(const Call& call, int i) {
  char kind = call.kind(i);
  if (kind == 't') {
    PyObject* capsules = Py_BuildValue("[N]", PyCapsule_New(call.handle(i), nullptr, nullptr));
    PyObject* tensors = capsules ? PyObject_CallFunctionObjArgs(objects[kToTensor], capsules, nullptr) : nullptr;
    PyObject* tensor = tensors ? PySequence_GetItem(tensors, 0) : nullptr;
    Py_XDECREF(capsules);
    Py_XDECREF(tensors);
    return tensor;
  }
  if (kind == 'b') return PyBool_FromLong(call.stack[i] & 1);
  if (kind == 'o') {
    if (!call.stack[i]) return Py_NewRef(Py_None);
    auto* value = reinterpret_cast<Value*>(call.stack[i]);
    PyObject* number = PyLong_FromLongLong(static_cast<int64_t>(*value));
    delete value;
    return number;
  }
  Handle list = call.handle(i);
  size_t size = 0;
  api.list_size(list, &size);
  PyObject* values = PyList_New(static_cast<Py_ssize_t>(size));
  for (size_t j = 0; values && j < size; j++) {
    Value value = 0;
    api.list_item(list, j, &value);
    PyList_SetItem(values, static_cast<Py_ssize_t>(j), PyLong_FromLongLong(static_cast<int64_t>(value)));
  }
  api.delete_list(list);
  return values;
}

// Lets Python compute the call; throws Python's error.
void by_python(Call& call, PyObject* key, bool offsets) {
  PyObject* arguments = PyTuple_New(2 + call.count);
  if (!arguments) throw python_error();
  PyTuple_SetItem(arguments, 0, Py_NewRef(key ? key : Py_None));
  PyTuple_SetItem(arguments, 1, Py_NewRef(offsets ? Py_True : Py_False));
  bool complete = true;
  for (int i = 0; i < call.count; i++) {  // take all of them, so that none is left when one fails
    if (complete) {
      PyObject* object = taken(call, i);
      complete = object != nullptr;
      PyTuple_SetItem(arguments, 2 + i, object);
    } else {
      ErrorAside error;
      Py_XDECREF(taken(call, i));
    }
  }
  PyObject* result = complete ? PyObject_CallObject(call.slot.python, arguments) : nullptr;
  Py_DECREF(arguments);
  if (!result) throw python_error();
  for (int i = 0; i < call.slot.results; i++) {
    PyObject* tensor = PyTuple_Check(result) ? PyTuple_GetItem(result, i) : result;
    PyObject* capsule = tensor ? PyObject_CallFunctionObjArgs(objects[kFromTensor], tensor, nullptr) : nullptr;
    if (!capsule) {
      Py_DECREF(result);
      throw python_error();
    }
    call.stack[i] = reinterpret_cast<Value>(PyCapsule_GetPointer(capsule, nullptr));
    Py_DECREF(capsule);
  }
  Py_DECREF(result);
}

// A tensor as PyTorch's C++ functions return it. Not trivial, so that they return it in memory.
struct Owned {
  void* impl = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  ~Owned() {}
  Handle handle() { return new void*(impl); }  // PyTorch deletes it
};
struct IntList {  // c10::ArrayRef<int64_t>
  const int64_t* values;
  size_t size;
};
using Pair = std::tuple<Owned, Owned>;
using WithIndices = Pair (*)(Handle, IntList, IntList, IntList, IntList, bool);  // at::_ops::max_pool*_with_indices::call
using Adaptive = Pair (*)(uint64_t keys, Handle, IntList);                       // at::_ops::adaptive_max_pool*::redispatch

// Lets PyTorch's autograd record the call. A maximum without indices is one with indices, whose node keeps offsets and
// whose second result is dropped. An adaptive one keeps its indices; its keys lead past the kernel here. Returns false if
// Python must make the call, or raise its error. Throws with the arguments unchanged.
bool record(Call& call) {
  bool drops = call.slot.role == kDropsIndices;
  Handle tensor = call.handle(0), results[2];
  const void *data = nullptr, *before = wants_offsets;
  if (drops) {  // no earlier call must have been equal: the kernel of the device decides what it saves
    for (int i = 1; i < 5; i++)
      if (!call.put_list(i)) return false;
    if (call.slot.one_axis && api.const_data(tensor, &data)) return false;
    wants_offsets = data ? data : impl_of(tensor);
  }
  auto list = [&](int i) { return IntList{call.lists[i], call.lengths[i]}; };
  try {
    struct Released {
      const void* before;
      PyThreadState* state = PyEval_SaveThread();  // a thread that waits for the GIL may have a lock of PyTorch
      ~Released() {
        PyEval_RestoreThread(state);
        wants_offsets = before;
      }
    } released{before};
    Pair pair = drops ? reinterpret_cast<WithIndices>(call.slot.recorded)(tensor, list(1), list(2), list(3), list(4), call.stack[5] & 1)
                      : reinterpret_cast<Adaptive>(call.slot.recorded)(call.slot.keys, tensor, list(1));
    results[0] = std::get<0>(pair).handle(), results[1] = std::get<1>(pair).handle();
  } catch (...) {
    if (call.slot.one_axis) return false;  // PyTorch's max_pool1d checks the arguments itself, with other errors
    throw;
  }
  if (drops) api.delete_tensor(results[1]);
  call.free_arguments();
  for (int i = 0; i < call.slot.results; i++) call.stack[i] = reinterpret_cast<Value>(results[i]);
  return true;
}

void dispatch(const Slot& slot, Value* stack) {
  Call call(slot, stack);
  Gil gil;
  bool offsets = slot.role == kDevice && slot.results == 2 && takes_wish(call.handle(0));
  bool usable = active[slot.role == kGradient] && (slot.role == kDevice || !followed());
  if (usable && slot.role == kGradient) usable = !api.grad_enabled();
  bool tracked = false;  // whether autograd records the call
  if (usable && (slot.role == kDropsIndices || slot.role == kReturnsIndices)) {
    bool defined = false;
    api.is_defined(call.handle(0), &defined);
    tracked = defined && api.grad_enabled() && api.requires_grad(*static_cast<void**>(call.handle(0)));
  }
  PyObject *key = nullptr, *entry = nullptr;
  bool done = false;
  try {
    if (tracked && slot.role == kDropsIndices) {
      done = slot.recorded && is_plain(call.handle(0)) && record(call);
    } else if (usable && call.read(slot.number, offsets, tracked)) {
      key = call.key.bytes();
      entry = key ? entry_of(key) : nullptr;
      if (entry) done = tracked ? slot.recorded && record(call) : compute(call, entry);
    }
  } catch (...) {
    call.free_arguments();
    Py_XDECREF(entry);
    Py_XDECREF(key);
    throw;
  }
  if (!done && PyErr_Occurred()) {
    {
      ErrorAside error;
      call.free_arguments();
      Py_XDECREF(entry);
      Py_XDECREF(key);
    }
    throw python_error();
  }
  try {
    if (!done) by_python(call, key, offsets);
  } catch (...) {
    Py_XDECREF(entry);
    Py_XDECREF(key);
    throw;
  }
  Py_XDECREF(entry);
  Py_XDECREF(key);
}

template <int N> void slot_kernel(Value* stack, uint64_t, uint64_t) { dispatch(slots[N], stack); }
template <int... N> constexpr Kernel kernel_of(int at, std::integer_sequence<int, N...>) {
  constexpr Kernel all[] = {slot_kernel<N>...};
  return all[at];
}

PyObject* symbols(PyObject*, PyObject*) {
  PyObject* names = PyTuple_New(kFunctions);
  for (int i = 0; names && i < kFunctions; i++) PyTuple_SetItem(names, i, PyUnicode_FromString(kSymbols[i]));
  return names;
}

PyObject* setup(PyObject*, PyObject* args) {
  PyObject* addresses = PyTuple_Size(args) == 4 + kGiven ? PyTuple_GetItem(args, 0) : nullptr;
  PyObject* plain = addresses ? PyTuple_GetItem(args, 2) : nullptr;
  if (!addresses || !PyTuple_CheckExact(addresses) || PyTuple_Size(addresses) != kFunctions || !PyTuple_CheckExact(plain) ||
      PyTuple_Size(plain) != 4)
    return PyErr_Format(PyExc_TypeError, "aten_setup takes the addresses of aten_symbols(), the place of the keys, four "
                                         "sets of keys, a key, and %d objects", kGiven);
  keys_at = PyLong_AsLongLong(PyTuple_GetItem(args, 1));
  for (int i = 0; i < 4; i++) plain_keys[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(plain, i));
  python_dispatcher = static_cast<uint16_t>(PyLong_AsLong(PyTuple_GetItem(args, 3)));
  if (PyErr_Occurred()) return nullptr;
  void* functions[kFunctions];
  for (int i = 0; i < kFunctions; i++) {
    functions[i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
    if (!functions[i]) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "%s has no address", kSymbols[i]);
  }
  std::memcpy(&api, functions, sizeof(api));
  for (int i = 0; i < kGiven; i++) objects[i] = Py_NewRef(PyTuple_GetItem(args, 4 + i));
  objects[kCurrentLevel] = PyUnicode_InternFromString("_current_level");
  Py_RETURN_NONE;
}

PyObject* add(PyObject*, PyObject* args) {
  const char *name, *key, *arguments;
  int role, results;
  long long number;
  unsigned long long recorded, keys;
  PyObject* python;
  if (!PyArg_ParseTuple(args, "ssisiLOKK", &name, &key, &role, &arguments, &results, &number, &python, &recorded, &keys)) return nullptr;
  bool fits = !recorded || std::string(arguments) == (role == kDropsIndices ? "tllllb" : "tl");
  if (used == kSlots || !fits || *arguments != 't' || results < 1 || results > 2 || std::strlen(arguments) > 8)
    return PyErr_Format(PyExc_ValueError, "aten_kernel: %s does not fit", name);
  Handle library = nullptr;
  slots[used] = {static_cast<Role>(role), results, arguments, reinterpret_cast<void*>(recorded), keys, Py_NewRef(python), number,
                 std::strstr(name, "1d") != nullptr};
  Kernel kernel = kernel_of(used, std::make_integer_sequence<int, kSlots>());
  PyThreadState* state = PyEval_SaveThread();  // the dispatcher's lock: another thread may have it and wait for the GIL
  bool failed = api.library_init_impl("aten", key, __FILE__, __LINE__, &library) ||
                api.library_impl(library, name, kernel, api.abi_version());
  PyEval_RestoreThread(state);
  if (failed) return PyErr_Format(PyExc_RuntimeError, "aten_kernel: PyTorch refuses a kernel for %s, %s", name, key);
  used++;  // the library stays, as the kernel does
  Py_RETURN_NONE;
}

PyObject* activate(PyObject*, PyObject* args) {
  int forwards, gradients;
  if (!PyArg_ParseTuple(args, "pp", &forwards, &gradients)) return nullptr;
  active[0] = forwards, active[1] = gradients;
  Py_RETURN_NONE;
}

PyObject* watch(PyObject*, PyObject* function) {
  PyObject* before = watcher;
  watcher = function == Py_None ? nullptr : Py_NewRef(function);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

PyObject* want_offsets(PyObject*, PyObject* input) {
  void* impl = PyLong_AsVoidPtr(input);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromVoidPtr(const_cast<void*>(std::exchange(wants_offsets, impl)));
}

PyMethodDef methods[] = {
    {"aten_symbols", symbols, METH_NOARGS, "aten_symbols() -> the names of the functions of PyTorch that aten_setup needs"},
    {"aten_setup", setup, METH_VARARGS, "aten_setup(addresses, keys_at, plain_keys, python_dispatcher, *objects): must come first; aten.cpp has the objects"},
    {"aten_kernel", add, METH_VARARGS,
     "aten_kernel(name, key, role, arguments, results, number, python, recorded, keys): puts a compiled kernel in the\n"
     "place of PyTorch's, for good. recorded: 0, or the address of PyTorch's function for calls that autograd records."},
    {"aten_activate", activate, METH_VARARGS, "aten_activate(forwards, gradients): whether the kernels use the cache"},
    {"aten_watch", watch, METH_O, "aten_watch(function): calls it with the name of each call that the cache computes; None ends it"},
    {"aten_want_offsets", want_offsets, METH_O,
     "aten_want_offsets(address) -> the address before: the next pool of the tensor whose TensorImpl, or data, is there,\n"
     "in this thread, returns offsets; 0 for none."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_aten(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace pooltide

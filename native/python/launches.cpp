// Launches of GPU kernels, with no Python in between.
//
// A `Launch` is a loaded kernel with its grid and its arguments, except the addresses of tensors. `Launches` has those of
// one problem, and their `run` is a kernel (kernels/__init__.py): it puts the addresses into the arguments and calls the
// CUDA driver. Python gives the address of the driver's function, so that no build needs CUDA. Calls that need more than
// that go to the method `enqueue` of a class of Python, kernels/cuda/launch.py.

#include "call_key.h"

#include <new>
#include <vector>

namespace pooltide {
namespace {

// The driver's CUlaunchAttribute and CUlaunchConfig.
struct Attribute {
  int32_t id, padding;
  uint64_t value[8];
};
struct Config {
  uint32_t grid[3], block[3], shared;
  uint64_t stream;
  Attribute* attributes;
  uint32_t count;
};
constexpr int32_t kEarlyStart = 6;           // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
constexpr size_t kMostBytes = 4096;          // of a kernel's arguments
constexpr Py_ssize_t kMostAddresses = 32;    // of tensors
using Enqueue = int (*)(const Config*, void* function, void** arguments, void** extra);

struct LaunchFacts {
  Enqueue enqueue;
  void* function;
  uint32_t grid, block, shared;
  bool early;  // it may start before the launch before it has ended, for which the kernel itself waits
  std::vector<char> arguments;
  PyObject* failed;  // (status, repeated): returns if the launch is to be repeated, else raises
};
struct LaunchObject {
  PyObject_HEAD
  LaunchFacts* facts;
};

// Enqueues with these addresses as the first arguments. Returns false with an exception set if it fails.
bool enqueue(const LaunchFacts& facts, uint64_t stream, const uint64_t* addresses, size_t count) {
  alignas(16) char arguments[kMostBytes];
  std::memcpy(arguments, facts.arguments.data(), facts.arguments.size());
  std::memcpy(arguments, addresses, count * sizeof(*addresses));
  Attribute early{kEarlyStart, 0, {1}};
  Config config{{facts.grid, 1, 1}, {facts.block, 1, 1}, facts.shared, stream, &early, facts.early};
  void* place = arguments;
  for (bool repeated = false;; repeated = true) {
    PyThreadState* state = PyEval_SaveThread();  // the driver waits while a queue is full
    int status = facts.enqueue(&config, facts.function, &place, nullptr);
    PyEval_RestoreThread(state);
    if (!status) return true;
    PyObject* again = PyObject_CallFunction(facts.failed, "iO", status, repeated ? Py_True : Py_False);
    if (!again) return false;
    Py_DECREF(again);
  }
}

PyObject* run_launch(PyObject* self, PyObject* const* args, Py_ssize_t n);
PyObject* run_launches(PyObject* self, PyObject* const* args, Py_ssize_t n);
using Method = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);
PyCFunction as_function(Method method) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method)); }

// Returns the object whose method this is, or nullptr. A borrowed reference.
PyObject* object_of(PyObject* function, Method method) {
  bool is = PyCFunction_Check(function) && PyCFunction_GetFunction(function) == as_function(method);
  return is ? PyCFunction_GetSelf(function) : nullptr;
}

const LaunchFacts& facts_of(PyObject* launch) { return *reinterpret_cast<LaunchObject*>(launch)->facts; }

PyObject* run_launch(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n < 1 || n > 1 + kMostAddresses || (n - 1) * sizeof(uint64_t) > facts_of(self).arguments.size())
    return PyErr_Format(PyExc_TypeError, "run takes a stream and the addresses of tensors, not %zd arguments", n);
  uint64_t values[1 + kMostAddresses];
  for (Py_ssize_t i = 0; i < n; i++) values[i] = PyLong_AsUnsignedLongLong(args[i]);
  if (PyErr_Occurred() || !enqueue(facts_of(self), values[0], values + 1, static_cast<size_t>(n - 1))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* create_launch(PyTypeObject* type, PyObject* args, PyObject*) {
  unsigned long long driver, function;
  unsigned int grid, block, shared;
  int early;
  const char* arguments;
  Py_ssize_t bytes;
  PyObject* failed;
  if (!PyArg_ParseTuple(args, "KKIIIpy#O", &driver, &function, &grid, &block, &shared, &early, &arguments, &bytes, &failed))
    return nullptr;
  if (static_cast<size_t>(bytes) > kMostBytes)
    return PyErr_Format(PyExc_ValueError, "Launch: arguments have %zd bytes; a kernel takes %zu", bytes, kMostBytes);
  auto* self = reinterpret_cast<LaunchObject*>(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  self->facts = new (std::nothrow) LaunchFacts{
      reinterpret_cast<Enqueue>(driver), reinterpret_cast<void*>(function), grid, block, shared, early != 0, {}, nullptr};
  if (!self->facts) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  self->facts->arguments.assign(arguments, arguments + bytes);
  self->facts->failed = Py_NewRef(failed);
  return reinterpret_cast<PyObject*>(self);
}

void destroy_launch(PyObject* self) {
  if (LaunchFacts* facts = reinterpret_cast<LaunchObject*>(self)->facts) {
    Py_XDECREF(facts->failed);
    delete facts;
  }
  free_object(self);
}

PyMethodDef launch_methods[] = {
    {"run", as_function(run_launch), METH_FASTCALL,
     "run(stream, *addresses): enqueues; the addresses are the kernel's first arguments."},
    {nullptr, nullptr, 0, nullptr},
};
constexpr TypeParts launch_type = {
    "pooltide._native.Launch",
    "Launch(driver, function, grid, block, shared, early, arguments, failed)\n\n"
    "A loaded kernel, ready to be launched. driver: the address of cuLaunchKernelEx; arguments: the kernel's, as bytes.\n"
    "failed(status, repeated) is called if the driver refuses; the launch is repeated if it returns.",
    sizeof(LaunchObject), launch_methods, create_launch, destroy_launch};

struct LaunchesObject {
  PyObject_HEAD
  PyObject *device_of, *stream_of;  // functions: () -> the current device; (device) -> its current stream
  PyObject* device;                 // its number
  bool gradient;
  uint64_t itemsize, index_bytes, errors;
  PyObject* new_counts;  // a function: (tensor) -> a new one like it
  PyObject *first, *second, *counts;  // methods Launch.run; a tensor as the first leaves it for the second
  PyObject* tables;                   // what they read: stays while they may be launched
  bool aligned;                       // tensors must begin at multiples of 16 bytes
  bool on_default, on_others;         // whether to launch at once on the default stream, and on other streams
};

LaunchesObject& launches_of(PyObject* self) { return *reinterpret_cast<LaunchesObject*>(self); }

// Returns the value of a new reference, or -1.
int64_t taken(PyObject* number) {
  int64_t value = number ? PyLong_AsLongLong(number) : -1;
  Py_XDECREF(number);
  return value;
}

// Enqueues the launches of a problem. Returns None, or nullptr with an exception set.
PyObject* launch_all(const LaunchesObject& o, PyObject* first, PyObject* second, PyObject* counts, uint64_t stream,
                     uint64_t source, uint64_t indices, uint64_t out, uint64_t faults) {
  uint64_t forward[] = {source, out, indices}, gradient[] = {source, indices, out, faults, 0};
  bool indexed = o.gradient && indices;
  uint64_t* addresses = indexed ? gradient : forward;
  size_t count = indexed ? 5 : indices ? 3 : 2;
  const LaunchFacts &one = facts_of(object_of(first, run_launch));
  const LaunchFacts* two = second == Py_None ? nullptr : &facts_of(object_of(second, run_launch));
  PyObject* left = two ? PyObject_CallFunctionObjArgs(o.new_counts, counts, nullptr) : nullptr;
  if (left) gradient[4] = static_cast<uint64_t>(taken(PyObject_CallMethod(left, "data_ptr", nullptr)));
  bool done = !PyErr_Occurred() && enqueue(one, stream, addresses, count) && (!two || enqueue(*two, stream, addresses, count));
  Py_XDECREF(left);
  return done ? Py_NewRef(Py_None) : nullptr;
}

// As run, on addresses.
PyObject* run_on(PyObject* self, uint64_t grad, uint64_t input, uint64_t indices, uint64_t out, uint64_t faults) {
  const LaunchesObject& o = launches_of(self);
  uint64_t source = o.gradient ? grad : input;
  if (!o.first) return PyErr_Format(PyExc_TypeError, "run comes after use");
  if ((source | out) % o.itemsize || indices % o.index_bytes) Py_RETURN_NOTIMPLEMENTED;
  int64_t stream = 0;
  bool at_once = o.on_default && !(o.aligned && (source | out | indices) % 16), on_others = o.on_others;
  // Another thread may exchange all of this at any call below.
  PyObject* held[] = {Py_NewRef(o.first), Py_NewRef(o.second), Py_NewRef(o.counts), Py_NewRef(o.tables)};
  if (at_once) {
    stream = taken(PyObject_CallFunctionObjArgs(o.stream_of, o.device, nullptr));
    at_once = (stream == 0 || on_others) && taken(PyObject_CallNoArgs(o.device_of)) == PyLong_AsLongLong(o.device);
  }
  using Number = unsigned long long;
  PyObject* done = nullptr;
  if (at_once)
    done = launch_all(o, held[0], held[1], held[2], static_cast<uint64_t>(stream), source, indices, out, faults);
  else if (!PyErr_Occurred())
    done = PyObject_CallMethod(self, "enqueue", "KKKK", Number{source}, Number{indices}, Number{out}, Number{faults});
  for (PyObject* each : held) Py_DECREF(each);
  return done;
}

// Reads an address, or None as 0. Returns false with an exception set if it is neither.
bool read_address(PyObject* object, uint64_t& address) {
  address = object == Py_None ? 0 : PyLong_AsUnsignedLongLong(object);
  return !PyErr_Occurred();
}

PyObject* run_launches(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n < 4 || n > 6)
    return PyErr_Format(PyExc_TypeError, "run(grad_output, input, indices, out, threads, faults) got %zd arguments", n);
  uint64_t at[4], faults = launches_of(self).errors;
  for (int i = 0; i < 4; i++)
    if (!read_address(args[i], at[i])) return nullptr;
  if (n == 6 && args[5] != Py_None && !read_address(args[5], faults)) return nullptr;
  return run_on(self, at[0], at[1], at[2], at[3], faults);
}

PyObject* create_launches(PyTypeObject* type, PyObject*, PyObject*) { return PyType_GenericAlloc(type, 0); }

void replace(PyObject*& held, PyObject* object) {
  PyObject* before = held;
  held = Py_XNewRef(object);
  Py_XDECREF(before);
}

PyObject* begin(PyObject* self, PyObject* args) {
  LaunchesObject& o = launches_of(self);
  PyObject *device_of, *stream_of, *new_counts, *device;
  int gradient;
  unsigned long long itemsize, index_bytes, errors;
  if (!PyArg_ParseTuple(args, "OOOO!pKKK", &device_of, &stream_of, &new_counts, &PyLong_Type, &device, &gradient, &itemsize,
                        &index_bytes, &errors))
    return nullptr;
  if (!itemsize || !index_bytes) return PyErr_Format(PyExc_ValueError, "begin: elements must have bytes");
  replace(o.device_of, device_of), replace(o.stream_of, stream_of), replace(o.new_counts, new_counts), replace(o.device, device);
  o.gradient = gradient, o.itemsize = itemsize, o.index_bytes = index_bytes, o.errors = errors;
  Py_RETURN_NONE;
}

// Returns whether these are launches of one problem; sets an exception if not.
bool are_launches(PyObject* first, PyObject* second) {
  if (object_of(first, run_launch) && (second == Py_None || object_of(second, run_launch))) return true;
  PyErr_SetString(PyExc_TypeError, "launches must be methods Launch.run");
  return false;
}

PyObject* use(PyObject* self, PyObject* args) {
  LaunchesObject& o = launches_of(self);
  PyObject *first, *second, *counts, *tables;
  int aligned, on_default, on_others;
  if (!PyArg_ParseTuple(args, "OOOOppp", &first, &second, &counts, &tables, &aligned, &on_default, &on_others) ||
      !are_launches(first, second))
    return nullptr;
  if (!o.device) return PyErr_Format(PyExc_TypeError, "use comes after begin");
  PyObject* before[] = {o.first, o.second, o.counts, o.tables};
  o.first = Py_NewRef(first), o.second = Py_NewRef(second), o.counts = Py_NewRef(counts), o.tables = Py_NewRef(tables);
  o.aligned = aligned, o.on_default = on_default, o.on_others = on_others;
  for (PyObject* each : before) Py_XDECREF(each);  // last: it may let another thread run
  Py_RETURN_NONE;
}

PyObject* launch(PyObject* self, PyObject* args) {
  PyObject *first, *second, *counts;
  unsigned long long stream, source, indices, out, faults;
  if (!PyArg_ParseTuple(args, "OOOKKKKK", &first, &second, &counts, &stream, &source, &indices, &out, &faults) ||
      !are_launches(first, second))
    return nullptr;
  return launch_all(launches_of(self), first, second, counts, stream, source, indices, out, faults);
}

void destroy_launches(PyObject* self) {
  LaunchesObject& o = launches_of(self);
  for (PyObject** each : {&o.device_of, &o.stream_of, &o.new_counts, &o.device, &o.first, &o.second, &o.counts, &o.tables})
    replace(*each, nullptr);
  free_object(self);
}

PyMethodDef launches_methods[] = {
    {"begin", begin, METH_VARARGS,
     "begin(device_of, stream_of, new_counts, device, gradient, itemsize, index_bytes, errors): must come first.\n\n"
     "device_of() -> the current device; stream_of(device) -> its current stream; new_counts(counts) -> a tensor like it;\n"
     "errors: the address of the record of bad indices."},
    {"use", use, METH_VARARGS,
     "use(first, second, counts, tables, aligned, on_default, on_others): what `run` launches.\n\n"
     "first, second: methods Launch.run; second may be None. counts: what new_counts takes for the second. tables: stay as\n"
     "long as `run` may launch what reads them. aligned: all addresses must be multiples of 16. on_default, on_others:\n"
     "whether `run` launches on the default stream, and on others. If not, or on another device, it calls the object's\n"
     "enqueue(source, indices, out, faults)."},
    {"launch", launch, METH_VARARGS,
     "launch(first, second, counts, stream, source, indices, out, faults): launches these, without any check."},
    {"run", as_function(run_launches), METH_FASTCALL,
     "run(grad_output, input, indices, out, threads, faults=None) -> None, or NotImplemented for misaligned addresses.\n\n"
     "Enqueues on the current stream. Takes addresses, or None."},
    {nullptr, nullptr, 0, nullptr},
};
constexpr TypeParts launches_type = {"pooltide._native.Launches", "The launches of a problem, a base class of Python's.",
                                     sizeof(LaunchesObject), launches_methods, create_launches, destroy_launches, nullptr,
                                     Py_TPFLAGS_BASETYPE};

}  // namespace

PyObject* run_kernel(PyObject* kernel, const Arrays& arrays, PyObject* threads) {
  auto number = [](const void* address) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address)); };
  if (PyObject* launches = object_of(kernel, run_launches)) {
    Py_INCREF(launches);
    PyObject* done = run_on(launches, number(arrays.grad), number(arrays.input), number(arrays.indices), number(arrays.out),
                            launches_of(launches).errors);
    Py_DECREF(launches);
    return done;
  }
  const PreparedProblem* prepared = problem_run_by(kernel);
  if (is_quick(prepared)) {  // releasing the GIL would take longer
    try {
      return Py_NewRef(prepared->run(arrays, 1, Forced()).count ? Py_NotImplemented : Py_None);
    } catch (const std::bad_alloc&) {
      return PyErr_NoMemory();
    }
  }
  PyObject* given[5];
  const void* addresses[] = {arrays.grad, arrays.input, arrays.indices, arrays.out};
  for (int i = 0; i < 4; i++)
    given[i] = addresses[i] ? PyLong_FromVoidPtr(const_cast<void*>(addresses[i])) : Py_NewRef(Py_None);
  given[4] = prepared ? PyObject_CallNoArgs(threads) : PyLong_FromLong(1);
  PyObject* fault = nullptr;
  if (given[0] && given[1] && given[2] && given[3] && given[4])
    fault = PyObject_CallFunctionObjArgs(kernel, given[0], given[1], given[2], given[3], given[4], nullptr);
  for (PyObject* each : given) Py_XDECREF(each);
  return fault;
}

bool add_launches(PyObject* module) { return add_type(module, launch_type) && add_type(module, launches_type); }

}  // namespace pooltide

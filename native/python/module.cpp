// The extension module pooltide._native.
//
// The module gives Python the class Prepared (a PreparedProblem with its tables), max unpooling, the choice of the
// instruction set and of an OpenMP runtime, huge pages for large results, the class Shortcuts (shortcuts.cpp), the
// kernels of PyTorch's operators (aten.cpp), and the launches of GPU kernels (launches.cpp).
// Prepared.run and unpool write their results into an array that Python passes. src/pooltide/_native.pyi has the
// signatures.

#include "memory.h"
#include "../threads/thread_pool.h"

#include <sys/mman.h>

#include <cstring>
#include <exception>
#include <new>
#include <optional>

#include "../prepared.h"
#include "../regions/regions.h"
#include "../unpool.h"

namespace pooltide {
namespace {

struct PreparedObject {
  PyObject_HEAD
  PreparedProblem* prepared;
  Ints* tables;  // nine: start, length and divisor per window of the axes d, h and w
};

const PreparedProblem& prepared_of(PyObject* self) { return *reinterpret_cast<PreparedObject*>(self)->prepared; }

// Returns whether this is the thread that handles signals. No other thread may take the GIL in the middle of a call:
// Python would end the thread if the program ends meanwhile.
bool is_main_thread() {
  PyObject* module = PyImport_ImportModule("threading");
  PyObject* thread = module ? PyObject_CallMethod(module, "main_thread", nullptr) : nullptr;
  PyObject* number = thread ? PyObject_GetAttrString(thread, "ident") : nullptr;
  bool is_main = number && PyLong_AsUnsignedLong(number) == PyThread_get_thread_ident();
  for (PyObject* each : {module, thread, number}) Py_XDECREF(each);
  PyErr_Clear();
  return is_main;
}

// Runs the handlers of signals that came. Returns whether one raised; its exception is then set.
bool handle_signals(void* context) {
  auto& state = *static_cast<PyThreadState**>(context);
  PyEval_RestoreThread(state);
  bool raised = PyErr_CheckSignals() < 0;
  state = PyEval_SaveThread();
  return raised;
}

// Calls `compute`, which returns a Fault, without the GIL. Returns what `run` returns (see its documentation below).
// A signal such as Ctrl-C ends a long call of the main thread, if the handler of the signal raises.
template <class F> PyObject* fault_of(bool takes_long, F compute) {
  Fault fault;
  bool out_of_memory = false;
  PyThreadState* state;
  std::optional<Interruption> interruption;
  if (takes_long && is_main_thread()) interruption.emplace(handle_signals, &state);
  state = PyEval_SaveThread();
  try {
    fault = compute(interruption ? &*interruption : nullptr);
  } catch (const std::exception&) {
    out_of_memory = true;
  }
  PyEval_RestoreThread(state);
  if (interruption && interruption->ended()) return nullptr;
  if (out_of_memory) return PyErr_NoMemory();
  if (fault.count == 0) Py_RETURN_NONE;
  return Py_BuildValue("LLL", (long long)fault.count, (long long)fault.position, (long long)fault.value);
}

// Runs the problem on args: grad_output, input, indices, out, threads. Arrays that the problem does not use are
// None.
PyObject* run_with(const PreparedProblem& prepared, PyObject* const* args, const Forced& forced) {
  const Problem& p = prepared.problem();
  int itemsize = static_cast<int>(p.itemsize());
  Memory source, indices, out;
  constexpr int readable = kAligned | kNative, writable = readable | kWriteable;
  const char* name = p.gradient() ? "grad_output" : "input";
  if (!source.read(args[p.gradient() ? 0 : 1], name, p.read_elements(), itemsize, readable)) return nullptr;
  if (p.index_bytes && !indices.read(args[2], "indices", p.planes() * p.windows(), p.index_bytes, p.gradient() ? readable : writable))
    return nullptr;
  if (!out.read(args[3], "out", p.written_elements(), itemsize, writable)) return nullptr;
  if (!source.usable || !indices.usable || !out.usable || out.overlaps(source) || out.overlaps(indices) ||
      (!p.gradient() && indices.overlaps(source)))
    Py_RETURN_NOTIMPLEMENTED;
  long threads = PyLong_AsLong(args[4]);
  if (threads == -1 && PyErr_Occurred()) return nullptr;
  Arrays arrays;
  (p.gradient() ? arrays.grad : arrays.input) = source.data;
  arrays.indices = indices.data, arrays.out = out.data;
  int limited_threads = static_cast<int>(threads > 4096 ? 4096 : threads < -4096 ? -4096 : threads ? threads : 1);
  return fault_of(prepared.takes_long(), [&](Interruption* i) { return prepared.run(arrays, limited_threads, forced, i); });
}

PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 5) return PyErr_Format(PyExc_TypeError, "run(grad_output, input, indices, out, threads) got %zd arguments", n);
  return run_with(prepared_of(self), args, Forced());
}

// After the arguments of run: the kernel's name, stream (-1, 0 or 1), chunk and tight.
PyObject* run_forced(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 9) return PyErr_Format(PyExc_TypeError, "run_forced takes 9 arguments, not %zd", n);
  const PreparedProblem& prepared = prepared_of(self);
  Forced forced;
  const char* name = PyUnicode_AsUTF8AndSize(args[5], nullptr);
  if (!name) return nullptr;
  KernelList list = prepared.kernels();
  for (int i = 0; i < list.count; i++)
    if (std::strcmp(list.first[i].name, name) == 0 && !list.first[i].refuse(prepared.problem(), true))
      forced.kernel = &list.first[i];
  if (!forced.kernel) return PyErr_Format(PyExc_ValueError, "the kernel %R does not take this problem", args[5]);
  forced.stream = static_cast<int>(PyLong_AsLong(args[6]));
  forced.chunk = PyLong_AsLongLong(args[7]);
  forced.tight = PyObject_IsTrue(args[8]) == 1;
  if (PyErr_Occurred()) return nullptr;
  return run_with(prepared, args, forced);
}

PyObject* kernels(PyObject* self, PyObject* ignore_speed) {
  const PreparedProblem& prepared = prepared_of(self);
  int all = PyObject_IsTrue(ignore_speed);
  PyObject* found = all < 0 ? nullptr : PyList_New(0);
  KernelList list = prepared.kernels();
  for (int i = 0; found && i < list.count; i++) {
    const char* reason = list.first[i].refuse(prepared.problem(), all);
    PyObject* pair = Py_BuildValue("sz", list.first[i].name, reason);
    if (!pair || PyList_Append(found, pair) < 0) Py_CLEAR(found);
    Py_XDECREF(pair);
    if (!all && !reason) break;
  }
  return found;
}

// Sets the tables per window of an axis, which may have none. Returns false with an exception set if a window
// has cells outside its axis, or if the tables have different lengths.
bool set_tables(int at, const Ints* tables, Axis& axis) {
  int64_t n = tables[0].size();
  if (n == 0 && tables[1].size() == 0 && tables[2].size() == 0) return true;
  if (n != axis.windows || tables[1].size() != n || tables[2].size() != n) {
    PyErr_Format(PyExc_ValueError, "axis %d: a table must have one element for each window", at);
    return false;
  }
  if (axis.dilation < 1) {
    PyErr_Format(PyExc_ValueError, "axis %d: dilation is %lld; it must be 1 or more", at, (long long)axis.dilation);
    return false;
  }
  axis.start = tables[0].data(), axis.length = tables[1].data(), axis.divisor = tables[2].data();
  for (int64_t o = 0; o < n; o++) {
    int64_t start = axis.start[o], length = axis.length[o];
    bool inside = start < axis.cells && length - 1 <= (axis.cells - 1 - start) / axis.dilation;
    if (start >= 0 && length >= 0 && (length == 0 || inside)) continue;
    PyErr_Format(PyExc_ValueError, "axis %d: window %lld has cells outside the axis", at, (long long)o);
    return false;
  }
  return true;
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  auto* self = reinterpret_cast<PreparedObject*>(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  Ints* t = self->tables = new (std::nothrow) Ints[9];
  int kind, store, quotient, channels_last, index_bytes;
  Problem facts;
  long long batch, channels, cells[3], windows[3], dilation[3];
  Axis* axes[] = {&facts.d, &facts.h, &facts.w};
  bool valid = t && PyArg_ParseTuple(
      args, "iiidpiLL(LLL)(LLL)(LLL)y*y*y*y*y*y*y*y*y*", &kind, &store, &quotient, &facts.divisor, &channels_last,
      &index_bytes, &batch, &channels, &cells[0], &cells[1], &cells[2], &windows[0], &windows[1], &windows[2],
      &dilation[0], &dilation[1], &dilation[2], &t[0].view, &t[1].view, &t[2].view, &t[3].view, &t[4].view,
      &t[5].view, &t[6].view, &t[7].view, &t[8].view);
  if (valid) {
    facts.kind = static_cast<Kind>(kind);
    facts.store = static_cast<Store>(store);
    facts.quotient = static_cast<Quotient>(quotient);
    facts.channels_last = channels_last, facts.index_bytes = index_bytes;
    facts.batch = batch, facts.channels = channels;
  }
  for (int i = 0; valid && i < 3; i++) {
    axes[i]->cells = cells[i], axes[i]->windows = windows[i], axes[i]->dilation = dilation[i];
    valid = set_tables(i, t + 3 * i, *axes[i]);
  }
  if (valid) try {
      self->prepared = new PreparedProblem(facts);
    } catch (const std::exception&) {
      PyErr_NoMemory();
    }
  if (!t) PyErr_NoMemory();
  if (self->prepared) return reinterpret_cast<PyObject*>(self);
  Py_DECREF(self);
  return nullptr;
}

void destroy(PyObject* self) {
  auto* object = reinterpret_cast<PreparedObject*>(self);
  delete object->prepared;
  delete[] object->tables;
  free_object(self);
}

PyMethodDef prepared_methods[] = {
    {"kernels", kernels, METH_O,
     "kernels(ignore_speed) -> [(name, reason or None), …], for the instruction set in use.\n\n"
     "The kernels up to the chosen one; the reasons say why the earlier kernels were not chosen.\n"
     "With ignore_speed=True all kernels; the reasons say why a kernel's result would be wrong."},
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL,
     "run(grad_output, input, indices, out, threads) -> None, (count, position, value) of bad indices, or\n"
     "NotImplemented.\n\n"
     "Arguments are arrays in the prepared layout, or addresses of such memory, or None where the problem has\n"
     "no such array. Returns NotImplemented, with nothing written, where an array is not aligned, not in native\n"
     "byte order or not writable, or where the result overlaps another array."},
    {"run_forced", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_forced)), METH_FASTCALL,
     "run_forced(grad_output, input, indices, out, threads, kernel, stream, chunk, tight): as run, for tests.\n\n"
     "kernel: its name. stream: 1 writes past the cache, 0 does not, -1 chooses as usual. chunk: the units that a\n"
     "thread takes at a time, 0 chooses as usual. tight: use the smallest scratch buffers, as for a large plane."},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* table_bytes(PyObject* self, void*) {
  int64_t bytes = prepared_of(self).table_bytes();
  for (int i = 0; i < 9; i++) bytes += reinterpret_cast<PreparedObject*>(self)->tables[i].view.len;
  return PyLong_FromLongLong(bytes);
}

PyGetSetDef prepared_attributes[] = {
    {"nbytes", table_bytes, nullptr, "The bytes of the tables, which live as long as the object.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

constexpr TypeParts prepared_type = {"pooltide._native.Prepared", "A problem in one layout, ready to run.",
                                     sizeof(PreparedObject), prepared_methods, create, destroy, prepared_attributes};

PyObject* instruction_sets(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const InstructionSet* k : pooltide::instruction_sets()) {
    PyObject* name = names ? PyUnicode_FromString(k->name) : nullptr;
    if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

PyObject* instruction_set(PyObject*, PyObject*) { return PyUnicode_FromString(pooltide::instruction_set()); }

PyObject* use_instruction_set(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8AndSize(name, nullptr);
  if (!text) return nullptr;
  if (pooltide::use_instruction_set(text)) Py_RETURN_NONE;
  return PyErr_Format(PyExc_ValueError, "use_instruction_set: name is %R; it must be one of instruction_sets()", name);
}

PyObject* use_huge_pages(PyObject*, PyObject* args) {
  PyObject* address;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(args, "On", &address, &bytes)) return nullptr;
  void* begin = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(request_huge_pages(begin, bytes));
}

PyObject* use_openmp(PyObject*, PyObject* args) {
  PyObject *parallel, *number;
  if (!PyArg_ParseTuple(args, "OO", &parallel, &number)) return nullptr;
  void *first = PyLong_AsVoidPtr(parallel), *second = PyLong_AsVoidPtr(number);
  if (PyErr_Occurred()) return nullptr;
  pooltide::use_openmp(reinterpret_cast<OpenMpParallel>(first), reinterpret_cast<OpenMpNumber>(second));
  Py_RETURN_NONE;
}

// See the documentation of `unpool` below.
PyObject* unpool(PyObject*, PyObject* args) {
  PyObject *from, *at, *to;
  long long planes, windows, cells, channels;
  int itemsize, index_bytes, gather, threads;
  if (!PyArg_ParseTuple(args, "OOOLLLLiipi", &from, &at, &to, &planes, &windows, &cells, &channels, &itemsize, &index_bytes, &gather, &threads))
    return nullptr;
  Memory source, indices, out;
  constexpr int readable = kAligned | kNative, writable = readable | kWriteable;
  if (!source.read(from, "source", planes * (gather ? cells : windows), itemsize, readable) ||
      !indices.read(at, "indices", planes * windows, index_bytes, readable) ||
      !out.read(to, "out", planes * (gather ? windows : cells), itemsize, writable))
    return nullptr;
  if (!source.usable || !indices.usable || !out.usable || out.overlaps(source) || out.overlaps(indices))
    Py_RETURN_NOTIMPLEMENTED;
  Unpool facts{planes, windows, cells, channels, itemsize, index_bytes, gather != 0, source.data, indices.data, out.data};
  return fault_of(takes_long(facts), [&](Interruption* i) { return run_unpool(facts, threads, i); });
}

// See the documentation of `regions` below.
PyObject* regions(PyObject*, PyObject* args) {
  PyObject *from, *rows, *at, *to;
  Regions r;
  int sampled, position_sensitive, gradient, store, channels_last, aligned, threads;
  long long batch, channels, height, width, count, bins_h, bins_w, ratio;
  if (!PyArg_ParseTuple(args, "OOOOpppipi(LLLL)L(LL)dLpi", &from, &rows, &at, &to, &sampled, &position_sensitive, &gradient,
                        &store, &channels_last, &r.index_bytes, &batch, &channels, &height, &width, &count, &bins_h,
                        &bins_w, &r.scale, &ratio, &aligned, &threads))
    return nullptr;
  r.sampled = sampled, r.position_sensitive = position_sensitive, r.gradient = gradient, r.store = static_cast<Store>(store);
  r.channels_last = channels_last, r.batch = batch, r.channels = channels, r.height = height, r.width = width;
  r.regions = count, r.bins_h = bins_h, r.bins_w = bins_w, r.ratio = ratio, r.aligned = aligned;
  Memory source, boxes, indices, out;
  constexpr int readable = kAligned | kNative, writable = readable | kWriteable;
  int itemsize = static_cast<int>(r.itemsize());
  int64_t image = r.image_elements(), pooled = r.pooled_elements();
  if (!source.read(from, gradient ? "grad_output" : "input", gradient ? pooled : image, itemsize, readable) ||
      !boxes.read(rows, "boxes", 5 * r.regions, itemsize == 8 ? 8 : 4, readable) ||
      (r.index_bytes && !indices.read(at, "indices", pooled, r.index_bytes, gradient ? readable : writable)) ||
      !out.read(to, "out", gradient ? image : pooled, itemsize, writable))
    return nullptr;
  if (!source.usable || !boxes.usable || !indices.usable || !out.usable || out.overlaps(source) || out.overlaps(boxes) ||
      out.overlaps(indices) || (!gradient && (indices.overlaps(source) || indices.overlaps(boxes))))
    Py_RETURN_NOTIMPLEMENTED;
  bool takes_long = 16.0 * pooled > kLongWork || image > kLongWork || ratio > 16;
  return fault_of(takes_long, [&](Interruption* i) { return run_regions(r, source.data, boxes.data, indices.data, out.data, threads, i); });
}

PyMethodDef methods[] = {
    {"unpool", unpool, METH_VARARGS,
     "unpool(source, indices, out, planes, windows, cells, channels, itemsize, index_bytes, gather, threads)\n\n"
     "Max unpooling, out[indices[q]] = source[q] and 0 elsewhere, or with gather=True its gradient,\n"
     "out[q] = source[indices[q]]. A plane has `windows` pooled and `cells` unpooled elements; `channels` is that of\n"
     "channels-last arrays, else 1. Returns what Prepared.run returns; a bad index writes nothing, or reads 0."},
    {"regions", regions, METH_VARARGS,
     "regions(source, boxes, indices, out, sampled, position_sensitive, gradient, store, channels_last, index_bytes,\n"
     "        (batch, channels, height, width), regions, (bins_h, bins_w), scale, ratio, aligned, threads)\n\n"
     "A pool over regions of interest, or its gradient (native/regions/regions.h). Boxes are in the type of sums. Returns\n"
     "what Prepared.run returns; of a region of no image the position is its number, and nothing is written."},
    {"instruction_sets", instruction_sets, METH_NOARGS, "The names of the instruction sets of this machine, the best last."},
    {"instruction_set", instruction_set, METH_NOARGS, "The name of the instruction set in use."},
    {"use_instruction_set", use_instruction_set, METH_O, "Use one of instruction_sets() from now on."},
    {"use_openmp", use_openmp, METH_VARARGS,
     "use_openmp(parallel, number)\n\n"
     "Calls with a negative number of threads run on those of an OpenMP runtime. The arguments are the addresses of its\n"
     "functions GOMP_parallel and omp_get_thread_num, or 0 and 0 for none."},
    {"use_huge_pages", use_huge_pages, METH_VARARGS,
     "use_huge_pages(address, bytes) -> bool\n\nRequest huge pages for memory that was not touched yet, if it is large. Returns whether the system accepts."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "pooltide's compiled code.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

bool request_huge_pages(void* begin, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = 4096;
  auto first = reinterpret_cast<uintptr_t>(begin);
  uintptr_t from = (first + page - 1) / page * page, to = (first + bytes) / page * page;
  return bytes >= kHuge && madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE) == 0;
#else
  return false;
#endif
}

const PreparedProblem* problem_run_by(PyObject* method) {
  if (!PyCFunction_Check(method)) return nullptr;
  bool runs = PyCFunction_GetFunction(method) == reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run));
  return runs ? &prepared_of(PyCFunction_GetSelf(method)) : nullptr;
}

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&definition);
  if (module && (!add_type(module, prepared_type) || !add_shortcuts(module) || !add_aten(module) || !add_launches(module))) Py_CLEAR(module);
  return module;
}

}  // namespace pooltide

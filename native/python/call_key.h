// The key of a call on tensors: what shortcuts.cpp and aten.cpp share.
//
// All values that the checks of a call depend on become integers. Calls with equal keys are equal, so the checks
// need not run again. The cache (kernels/calls.py) has the keys as bytes.

#pragma once

#include "memory.h"

#include "../prepared.h"

namespace pooltide {

constexpr int64_t kQuick = 192 << 10;  // bytes that a kernel moves in microseconds

// The key of a call: integers. Each tensor's sizes follow their number, so different calls have different keys.
// `valid` is false if the key would be too long, if a size has more than 31 bits, or if an argument has no integer form.
struct CallKey {
  static constexpr int kMost = 96;
  int64_t values[kMost];
  int count = 0;
  bool valid = true;

  void put(int64_t value) {
    if (count < kMost) values[count++] = value;
    else valid = false;
  }
  // Huge sizes, which are not valid, and negative numbers may lose bits here: a signed shift would be undefined.
  static int64_t shifted(int64_t value, int by) { return static_cast<int64_t>(static_cast<uint64_t>(value) << by); }
  void put(const void* pointer) { put(static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer))); }
  void tensor(int64_t device, int64_t number, int64_t dtype, int64_t dims, const int64_t* sizes, const int64_t* strides) {
    put(shifted(number, 40) | shifted(device, 32) | dtype << 8 | dims);
    for (int64_t i = 0; i < dims; i++) {
      put(shifted(sizes[i], 32) | strides[i]);
      valid = valid && (sizes[i] | strides[i]) >> 31 == 0;
    }
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
    } else if (PyTuple_CheckExact(value)) {
      put(PyTuple_Size(value));
      for (Py_ssize_t i = 0; i < PyTuple_Size(value); i++)
        if (!integer(PyTuple_GetItem(value, i))) return;
    } else if (PyList_CheckExact(value)) {
      put(PyList_Size(value));
      for (Py_ssize_t i = 0; i < PyList_Size(value); i++)
        if (!integer(PyList_GetItem(value, i))) return;
    } else {
      put(-2);
      integer(value);
    }
  }

  PyObject* bytes() const {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values), sizeof(int64_t) * count);
  }
};

inline bool is_quick(const PreparedProblem* prepared) { return prepared && prepared->problem().moved_bytes() <= kQuick; }

// Runs a kernel (kernels/__init__.py) on memory. Returns what it returns, or NotImplemented for bad indices in a small
// problem, or nullptr with an exception set. `threads` is a function that returns how many the kernel may use.
PyObject* run_kernel(PyObject* kernel, const Arrays& arrays, PyObject* threads);

// Returns whether a new reference is to a false value; a call that failed is not.
inline bool is_zero(PyObject* result) {
  if (!result) return PyErr_Clear(), false;
  bool zero = PyObject_Not(result) == 1;
  Py_DECREF(result);
  return zero;
}

}  // namespace pooltide

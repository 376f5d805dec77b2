// Memory that Python hands to the kernels: arrays, addresses, buffers of integers.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace pooltide {

// The struct behind an array's __array_struct__ capsule, as NumPy documents it.
struct ArrayInterface {
  int two, nd;
  char typekind;
  int itemsize, flags;
  Py_intptr_t *shape, *strides;
  void* data;
  PyObject* descr;
};
constexpr int kAligned = 0x100, kNative = 0x200, kWriteable = 0x400;

// Memory of `elements` × `itemsize` bytes, of an array or at an address taken on trust.
struct Memory {
  char* data = nullptr;
  int64_t bytes = 0;
  bool usable = true;  // false: misaligned, or an array that is byte-swapped or not to be written

  // False with an exception set when `object` is no such memory.
  bool take(PyObject* object, const char* name, int64_t elements, int itemsize, int needs) {
    bytes = elements * itemsize;
    if (PyLong_Check(object)) {
      data = static_cast<char*>(PyLong_AsVoidPtr(object));
      if (!data && bytes && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%s has no memory; it must have %lld bytes", name, (long long)bytes);
      usable = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(itemsize) == 0;
      return data || !PyErr_Occurred();
    }
    static PyObject* name_of_struct = PyUnicode_InternFromString("__array_struct__");
    if (!name_of_struct) return false;
    PyObject* capsule = PyObject_GetAttr(object, name_of_struct);
    if (!capsule) return false;
    auto* array = static_cast<ArrayInterface*>(PyCapsule_GetPointer(capsule, nullptr));
    bool fits = array && array->two == 2 && array->itemsize == itemsize;
    if (fits) {
      int64_t found = 1;
      for (int i = 0; i < array->nd; i++) found *= array->shape[i];
      fits = found == elements;
      data = static_cast<char*>(array->data);
      usable = (array->flags & needs) == needs;
    }
    Py_DECREF(capsule);
    if (!fits && !PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "%s must have %lld elements of %d bytes", name, (long long)elements, itemsize);
    return fits;
  }

  bool meets(const Memory& other) const { return data < other.data + other.bytes && other.data < data + bytes; }
};

// A buffer of int32 that is released with its scope.
struct Ints {
  Py_buffer view{};
  ~Ints() { if (view.obj) PyBuffer_Release(&view); }
  const int32_t* data() const { return static_cast<const int32_t*>(view.buf); }
  int64_t size() const { return view.len / static_cast<Py_ssize_t>(sizeof(int32_t)); }
};

// Adds the type Shortcuts to the module. Returns false with an exception set when it can't.
bool add_shortcuts(PyObject* module);

}  // namespace pooltide

// What the files of native/python share.
//
// `Memory` and `Ints` read arrays, addresses and buffers that Python passes, and set a Python exception if they
// cannot. `add_type` adds a Python type to the module. All of native/python uses only Python's limited API of 3.11,
// so that one wheel serves Python 3.11 and newer.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

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

// Memory of `elements` × `itemsize` bytes: of an array, or at an address that is not checked.
struct Memory {
  char* data = nullptr;
  int64_t bytes = 0;
  bool usable = true;  // false: misaligned, byte-swapped or read-only

  // Reads `object`, an array or an address. `required` holds the flags that an array must have to be usable.
  // Returns false with an exception set if the array has another size.
  bool read(PyObject* object, const char* name, int64_t elements, int itemsize, int required) {
    bytes = elements * itemsize;
    if (PyLong_Check(object)) {
      data = static_cast<char*>(PyLong_AsVoidPtr(object));
      if (!data && bytes && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%s has no memory; it must have %lld bytes", name, (long long)bytes);
      usable = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(itemsize) == 0;
      return data || !PyErr_Occurred();
    }
    static PyObject* attribute = PyUnicode_InternFromString("__array_struct__");
    if (!attribute) return false;
    PyObject* capsule = PyObject_GetAttr(object, attribute);
    if (!capsule) return false;
    auto* array = static_cast<ArrayInterface*>(PyCapsule_GetPointer(capsule, nullptr));
    bool fits = array && array->two == 2 && array->itemsize == itemsize;
    if (fits) {
      int64_t size = 1;
      for (int i = 0; i < array->nd; i++) size *= array->shape[i];
      fits = size == elements;
      data = static_cast<char*>(array->data);
      usable = (array->flags & required) == required;
    }
    Py_DECREF(capsule);
    if (!fits && !PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "%s must have %lld elements of %d bytes", name, (long long)elements, itemsize);
    return fits;
  }

  bool overlaps(const Memory& other) const { return data < other.data + other.bytes && other.data < data + bytes; }
};

// A Python buffer of int32; the destructor releases it.
struct Ints {
  Py_buffer view{};
  ~Ints() { if (view.obj) PyBuffer_Release(&view); }
  const int32_t* data() const { return static_cast<const int32_t*>(view.buf); }
  int64_t size() const { return view.len / static_cast<Py_ssize_t>(sizeof(int32_t)); }
};

// Requests huge pages for new memory, if it has kHuge bytes or more: with pages of 4 KB, page faults take longer than
// a pooling kernel. Returns whether the system accepts.
constexpr int64_t kHuge = 4 << 20;
bool request_huge_pages(void* begin, int64_t bytes);

class PreparedProblem;

// Returns the problem that a Python object runs, or nullptr if the object is not a method Prepared.run.
const PreparedProblem* problem_run_by(PyObject* method);

// Adds the type Shortcuts to the module. Returns false with an exception set if it fails.
bool add_shortcuts(PyObject* module);

// Adds the functions of aten.cpp to the module. Returns false with an exception set if it fails.
bool add_aten(PyObject* module);

// Adds the types of launches.cpp to the module. Returns false with an exception set if it fails.
bool add_launches(PyObject* module);

struct TypeParts {
  const char *name, *doc;
  int size;
  PyMethodDef* methods;
  newfunc create;
  destructor destroy;
  PyGetSetDef* attributes = nullptr;
  unsigned int flags = 0;
};

// Adds a type to the module under the last part of its name. Returns false with an exception set if it fails.
inline bool add_type(PyObject* module, const TypeParts& parts) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(parts.doc)},
                         {Py_tp_methods, parts.methods},
                         {Py_tp_new, reinterpret_cast<void*>(parts.create)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(parts.destroy)},
                         {parts.attributes ? Py_tp_getset : 0, parts.attributes},
                         {0, nullptr}};
  PyType_Spec spec = {parts.name, parts.size, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | parts.flags, slots};
  PyObject* type = PyType_FromSpec(&spec);
  bool added = type && PyModule_AddObjectRef(module, std::strrchr(parts.name, '.') + 1, type) == 0;
  Py_XDECREF(type);
  return added;
}

// Frees an object of such a type, as the last step of its `destroy`.
inline void free_object(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);  // a class of Python may have another than ours
  Py_DECREF(type);  // the object had a reference to its type
}

}  // namespace pooltide

// The extension module pooltide._native: what Python calls of the compiled code.

#include <Python.h>

namespace {

PyObject* build(PyObject*, PyObject*) {
  return Py_BuildValue("{s:s,s:l}", "compiler", __VERSION__, "standard", static_cast<long>(__cplusplus));
}

PyMethodDef methods[] = {
    {"build", build, METH_NOARGS, "How this module was compiled."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "pooltide's compiled code.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&definition); }

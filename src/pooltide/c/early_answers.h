/* aclInit(NULL), aclFinalize and aclGetRecentErrMsg before any other call are answered without the package:
 * they only change whether the runtime is initialized. The first other call imports the package and makes
 * the calls that were answered here.
 *
 * With a setting in the environment, or in a process that ran Python before, nothing is answered early. */

static enum { NOTHING, INITIALIZED, FINALIZED } answered;  /* what the package must be told; under `starting` */

/* Whether Python finds the package. If not, the import says why. */
static int finds_package(void) {
    PyGILState_STATE gil = py.PyGILState_Ensure();
    PyObject *machinery = py.PyImport_ImportModule("_frozen_importlib_external");
    PyObject *finder = machinery ? py.PyObject_GetAttrString(machinery, "PathFinder") : NULL;
    PyObject *spec = finder ? py.PyObject_CallMethod(finder, "find_spec", "s", "pooltide") : NULL;
    const int exists = spec != NULL && spec != py.None;
    if (spec) py.Py_DecRef(spec);
    if (finder) py.Py_DecRef(finder);
    if (machinery) py.Py_DecRef(machinery);
    py.PyErr_Clear();
    py.PyGILState_Release(gil);
    return exists;
}

static int has_settings(void) {
    static const char *const names[] = {"PRODUCT", "CHECKS", "TRACE", "REPORT", "EDITION", "DEVICES"};
    char name[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "POOLTIDE_%s", names[i]);
        if (getenv(name)) return 1;
    }
    return 0;
}

/* Answer a call without the package. Returns 0 when the package must answer. */
static int answer_early(const Entry *entry, const Word *words, Word *result) {
    int done = 0;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != INTERPRETER || !own_interpreter) return 0;
    pthread_mutex_lock(&starting);
    if (state == INTERPRETER && strcmp(entry->name, "aclInit") == 0) {
        done = words[0] == 0 && answered != INITIALIZED && !has_settings() && finds_package();
        if (done) answered = INITIALIZED;
    } else if (state == INTERPRETER && strcmp(entry->name, "aclFinalize") == 0) {
        done = answered == INITIALIZED;
        if (done) answered = FINALIZED;
    } else if (state == INTERPRETER && strcmp(entry->name, "aclGetRecentErrMsg") == 0) {
        done = answered != NOTHING && *message == 0;
    }
    pthread_mutex_unlock(&starting);
    if (done) *result = 0;
    return done;
}

/* Make the calls that were answered early, with the GIL held. */
static void catch_up(void) {
    if (answered == NOTHING) return;
    PyObject *done = py.PyObject_CallMethod(dispatch_module, "catch_up", "i", answered == FINALIZED);
    if (done == NULL) py.PyErr_Clear();
    else py.Py_DecRef(done);
}

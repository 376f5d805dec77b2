/* The library behind the headers: one Python interpreter, started at the first call or joined if
 * the process has one, and a door to it. All logic is in Python (pooltide/c/entry.py).
 *
 * The interpreter is known by absolute path, POOLTIDE_PYTHON, and its library, POOLTIDE_LIBPYTHON,
 * is opened by absolute path too, so that no environment variable can put another in its place; and
 * globally, since extension modules look their symbols up in the process.
 * A program must never take a failure to start for success: then every call fails and says why. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT 4096       /* bytes of a message */
#define LONGEST 4096    /* elements of an array that a program may pass */

typedef uintptr_t Word;

typedef struct {
    const char *name;
    const char *kinds;  /* of the parameters, as signatures.py lists them; o: an out-parameter */
    char result;
    Word failure;
} Entry;

static Word call_python(int index, const Word *words);

#include "entries.h"

#define COUNT ((int)(sizeof entries / sizeof *entries))

#define PYTHON(X) \
    X(Py_IsInitialized) X(Py_GetVersion) X(Py_PreInitialize) X(PyPreConfig_InitIsolatedConfig) \
    X(PyConfig_InitIsolatedConfig) X(PyConfig_SetBytesString) X(PyConfig_Clear) \
    X(Py_InitializeFromConfig) X(PyStatus_Exception) X(PyGILState_Ensure) X(PyGILState_Release) \
    X(PyGILState_Check) X(PyGILState_GetThisThreadState) X(PyEval_SaveThread) \
    X(PyEval_RestoreThread) X(PyThreadState_Clear) X(PyThreadState_DeleteCurrent) \
    X(PyImport_ImportModule) X(PyObject_CallMethod) X(PyObject_CallObject) X(PyObject_Str) \
    X(PyTuple_New) X(PyTuple_SetItem) X(PyTuple_GetItem) X(PyTuple_Size) X(PyLong_FromLongLong) \
    X(PyLong_FromUnsignedLongLong) X(PyLong_AsUnsignedLongLongMask) X(PyUnicode_FromString) \
    X(PyUnicode_DecodeFSDefault) X(PyUnicode_AsUTF8) X(PyErr_Fetch) X(PyErr_Clear) X(Py_IncRef) X(Py_DecRef)

static struct {
#define X(name) __typeof__(&name) name;
    PYTHON(X)
#undef X
    PyObject *None;
} py;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static enum { IDLE, STARTING, STARTED, BROKEN } state;  /* atomic */
static int forked;                            /* set in a child whose parent had begun to start Python */
static char reason[TEXT];                     /* of BROKEN */
static PyObject *targets;                     /* a tuple of Python functions, in the entries' order */
static PyObject *door;                        /* the module pooltide.c.entry */
static const int64_t (*guards)[2];            /* device addresses: [start, end), until start is 0 */
static pthread_key_t leaving;                 /* a thread's Python state, given back at its end */

static _Thread_local char message[TEXT];      /* what aclGetRecentErrMsg returns */
static _Thread_local int attached;
static _Thread_local const char *latest;      /* the name of this thread's last call */

static void keep(char *target, const char *text) {
    size_t length = strnlen(text, TEXT - 1);
    while (length == TEXT - 1 && length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) length--;
    memcpy(target, text, length);
    target[length] = 0;
}

static void broken(const char *what, const char *detail) {
    char text[TEXT];
    snprintf(text, sizeof text, "%s: %s", what, detail && *detail ? detail : "no reason given");
    keep(reason, text);
}

/* The pending exception as text. */
static void exception(char *text) {
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    py.PyErr_Fetch(&type, &value, &trace);
    PyObject *words = value ? py.PyObject_Str(value) : NULL;
    const char *utf8 = words ? py.PyUnicode_AsUTF8(words) : NULL;
    keep(text, utf8 ? utf8 : "an exception without a text");
    py.PyErr_Clear();
    if (words) py.Py_DecRef(words);
    if (type) py.Py_DecRef(type);
    if (value) py.Py_DecRef(value);
    if (trace) py.Py_DecRef(trace);
}

/* Find Python's functions: in the process if it runs Python, else in the environment's library. */
static int find_python(void) {
    void *library = RTLD_DEFAULT;
    int (*running)(void) = (int (*)(void))(Word)dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    if (running == NULL || !running()) {
        library = dlopen(POOLTIDE_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL);
        if (library == NULL) return broken("libpython can't be loaded", dlerror()), 0;
    }
#define X(symbol) \
    if ((py.symbol = (__typeof__(py.symbol))(Word)dlsym(library, #symbol)) == NULL) \
        return broken("libpython lacks a function", #symbol), 0;
    PYTHON(X)
#undef X
    py.None = dlsym(library, "_Py_NoneStruct");
    size_t known = strlen(POOLTIDE_VERSION);
    if (strncmp(py.Py_GetVersion(), POOLTIDE_VERSION, known) != 0 || py.Py_GetVersion()[known] != '.')
        return broken("this library was built for Python " POOLTIDE_VERSION ", and the process runs",
                      py.Py_GetVersion()), 0;
    return py.None != NULL;
}

static int initialize(void) {
    PyPreConfig pre;
    py.PyPreConfig_InitIsolatedConfig(&pre);
    pre.utf8_mode = 1;
    /* A leak checker looks for pointers in malloc's blocks only, not in Python's own arenas. */
    if (dlsym(RTLD_DEFAULT, "__lsan_do_leak_check")) pre.allocator = PYMEM_ALLOCATOR_MALLOC;
    PyStatus status = py.Py_PreInitialize(&pre);
    PyConfig config;
    py.PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 0;
    if (!py.PyStatus_Exception(status))
        status = py.PyConfig_SetBytesString(&config, &config.program_name, POOLTIDE_PYTHON);
    if (!py.PyStatus_Exception(status))
        status = py.PyConfig_SetBytesString(&config, &config.executable, POOLTIDE_PYTHON);
    if (!py.PyStatus_Exception(status)) status = py.Py_InitializeFromConfig(&config);
    py.PyConfig_Clear(&config);
    if (py.PyStatus_Exception(status))
        return broken("the interpreter " POOLTIDE_PYTHON " can't start", status.err_msg), 0;
    return 1;
}

/* Import the Python side, with the GIL held. */
static int open_door(void) {
    char text[TEXT];
    PyObject *pair = NULL;
    door = py.PyImport_ImportModule("pooltide.c.entry");
    if (door != NULL) pair = py.PyObject_CallMethod(door, "start", NULL);
    if (pair == NULL) {
        exception(text);
        return broken("the package pooltide of " POOLTIDE_PYTHON " can't be loaded", text), 0;
    }
    targets = py.PyTuple_GetItem(pair, 0);
    guards = (const int64_t(*)[2])(Word)py.PyLong_AsUnsignedLongLongMask(py.PyTuple_GetItem(pair, 1));
    if (py.PyTuple_Size(targets) != COUNT) {
        snprintf(text, sizeof text, "it has %d functions and this library %d; run pooltide cflags",
                 (int)py.PyTuple_Size(targets), COUNT);
        return broken("the package pooltide is not the one that made this library", text), 0;
    }
    return 1;
}

/* Another thread may have been inside Python, or starting it: the child can't use what it left. */
static void in_child(void) {
    if (state == STARTING || state == STARTED) forked = 1;
    pthread_mutex_init(&starting, NULL);
}

static void leave(void *thread_state) {
    if (forked || !py.Py_IsInitialized()) return;
    py.PyEval_RestoreThread(thread_state);
    py.PyThreadState_Clear(thread_state);
    py.PyThreadState_DeleteCurrent();
}

#include "fault.h"
#include "ending.h"

static void on_main_end(void *key) {
    (void)key;
    __atomic_store_n(&main_ended, 1, __ATOMIC_SEQ_CST);
    if (!forked && __atomic_load_n(&state, __ATOMIC_SEQ_CST) == STARTED) start_watcher();
}

__attribute__((constructor)) static void on_load(void) {
    pthread_atfork(NULL, NULL, in_child);
    know_main_thread(on_main_end);
}

/* Start or join the interpreter, and open the door; whether that was possible. */
static int start_python(void) {
    int joins = 0;
    PyGILState_STATE gil;
    int good = find_python();
    if (good) {
        joins = py.Py_IsInitialized();
        if (joins) gil = py.PyGILState_Ensure();
        else good = initialize();
    }
    if (good) {
        good = open_door();
        if (joins) py.PyGILState_Release(gil);
        else py.PyEval_SaveThread();  /* never finalized: its threads may run until the process ends */
    }
    if (good) pthread_key_create(&leaving, leave);
    if (good && !joins) handle_faults();
    return good;
}

static void start(void) {
    char name[16];  /* what the system allows */
    __atomic_store_n(&state, STARTING, __ATOMIC_RELEASE);
    prctl(PR_GET_NAME, name);
    prctl(PR_SET_NAME, THREAD_NAME);  /* threads that NumPy starts inherit it */
    int good = start_python();
    prctl(PR_SET_NAME, name);
    __atomic_store_n(&state, good ? STARTED : BROKEN, __ATOMIC_SEQ_CST);
    if (good && __atomic_load_n(&main_ended, __ATOMIC_SEQ_CST)) start_watcher();
}

/* Why Python can't be called; NULL when it can. */
static const char *unready(void) {
    if (!forked && __atomic_load_n(&state, __ATOMIC_ACQUIRE) < STARTED) {
        pthread_mutex_lock(&starting);
        if (state == IDLE) start();
        pthread_mutex_unlock(&starting);
    }
    if (forked)
        return "this process was forked from one that had called the runtime; "
               "fork before the first call, or call from the parent.";
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == BROKEN ? reason : NULL;
}

/* Fail without Python: say why, and keep it for aclGetRecentErrMsg. */
static Word fail(const Entry *entry, const char *why) {
    char text[TEXT];
    if (entry->result == 's') return (Word)(*message ? message : why);
    snprintf(text, sizeof text, "%s: %s", entry->name, why);
    keep(message, text);
    fprintf(stderr, "pooltide: %s\n", message);
    return entry->failure;
}

static PyObject *none(void) {
    py.Py_IncRef(py.None);
    return py.None;
}

/* An array as a tuple; its length alone when nobody can mean that many. */
static PyObject *array(const int64_t *values, Word length) {
    if (values == NULL && length > 0) return none();
    if (length > LONGEST) return py.PyLong_FromUnsignedLongLong(length);
    PyObject *tuple = py.PyTuple_New((Py_ssize_t)length);
    for (Word i = 0; tuple != NULL && i < length; i++)
        py.PyTuple_SetItem(tuple, (Py_ssize_t)i, py.PyLong_FromLongLong(values[i]));
    return tuple;
}

static PyObject *as_python(char kind, Word word) {
    switch (kind) {
        case 'i': return py.PyLong_FromLongLong((int64_t)word);
        case 'u': return py.PyLong_FromUnsignedLongLong(word);
        case 's': return word ? py.PyUnicode_DecodeFSDefault((const char *)word) : none();
        default: return word ? py.PyLong_FromUnsignedLongLong(word) : none();
    }
}

/* The words as a tuple: the arguments in order, an out-parameter as its address, no lengths. */
static PyObject *pack(const char *kinds, const Word *words) {
    PyObject *items[32];
    int count = 0;
    for (int at = 0; *kinds; kinds++, at++) {
        if (*kinds == 'n') continue;
        if (*kinds == 'a')
            items[count++] = array((const int64_t *)words[at], words[*++kinds - '0']);
        else
            items[count++] = as_python(*kinds, words[at]);
    }
    PyObject *tuple = py.PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) py.PyTuple_SetItem(tuple, i, items[i]);
    return tuple;
}

/* Python's answer: (the out-parameters' values or None where all stay, the result). */
static Word unpack(const Entry *entry, PyObject *answer, const Word *words) {
    PyObject *outs = py.PyTuple_GetItem(answer, 0), *result = py.PyTuple_GetItem(answer, 1);
    int next = 0;
    for (int i = 0, at = 0; entry->kinds[i] && outs != py.None; i++, at++) {
        if (entry->kinds[i] == 'a') i++;
        if (entry->kinds[i] != 'o') continue;
        uint64_t value = py.PyLong_AsUnsignedLongLongMask(py.PyTuple_GetItem(outs, next++));
        memcpy((void *)words[at], &value, sizeof value);
    }
    if (result == py.None) return 0;
    if (entry->result != 's') return (Word)py.PyLong_AsUnsignedLongLongMask(result);
    const char *text = py.PyUnicode_AsUTF8(result);
    keep(message, text ? text : "");
    return (Word)message;
}

static Word call_python(int index, const Word *words) {
    const Entry *entry = &entries[index];
    Word result = entry->failure;
    char text[TEXT];
    const char *why = unready();
    if (why != NULL) return fail(entry, why);
    latest = entry->name;
    PyThreadState *known = attached ? NULL : py.PyGILState_GetThisThreadState();
    PyGILState_STATE gil = py.PyGILState_Ensure();
    if (!attached && known == NULL) {
        /* One reference more, so that Python's memory of this thread lasts until the thread ends. */
        py.PyGILState_Ensure();
        pthread_setspecific(leaving, py.PyGILState_GetThisThreadState());
    }
    attached = 1;
    PyObject *arguments = pack(entry->kinds, words);
    PyObject *answer = arguments ? py.PyObject_CallObject(py.PyTuple_GetItem(targets, index), arguments) : NULL;
    if (arguments) py.Py_DecRef(arguments);
    if (answer != NULL) {
        result = unpack(entry, answer, words);
        py.Py_DecRef(answer);
        py.PyErr_Clear();
    } else {
        exception(text);
    }
    py.PyGILState_Release(gil);
    return answer != NULL ? result : fail(entry, text);
}

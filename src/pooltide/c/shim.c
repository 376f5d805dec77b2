/* The library behind the headers. Each C function converts its arguments and calls the Python function
 * of the same name in pooltide/c/dispatch.py. The first call starts a Python interpreter, unless the
 * process runs one already.
 *
 * The interpreter, POOLTIDE_PYTHON, and its library, POOLTIDE_LIBPYTHON, have absolute paths, so that no
 * environment variable can replace them. The library is opened with RTLD_GLOBAL, as Python's extension
 * modules need its symbols. If the interpreter can't start, every call fails and says why.
 *
 * Importing the package takes most of the start's time, so the first call that needs the package imports it.
 * aclInit(NULL) and aclFinalize do not need it: see early_answers.h. */

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
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TEXT 4096       /* bytes of a message */
#define MAX_ARRAY 4096  /* elements of an array that a program may pass */
#define STACK_KB 96     /* of the calling thread's stack that must be left; starting Python takes 57, a call 26 */

typedef uintptr_t Word;

typedef struct {
    const char *name;
    const char *kinds;  /* of the parameters, as signatures.py lists them; an array's letter and the
                           position of its length. Out-parameters: o of 8 bytes, q of 4, g a float, x an array */
    char result;        /* as above; c: a text that never changes */
    Word failure;       /* the result of a call that fails before Python runs */
} Entry;

static Word call_python(int index, const Word *words, Word caller);

/* The bits of a float or a double. */
static inline Word double_word(double value) {
    Word word;
    memcpy(&word, &value, sizeof word);
    return word;
}

#include "entries.h"
#include "call_stack.h"

#define COUNT ((int)(sizeof entries / sizeof *entries))

#define PYTHON(X) \
    X(Py_IsInitialized) X(Py_GetVersion) X(Py_PreInitialize) X(PyPreConfig_InitIsolatedConfig) \
    X(PyConfig_InitIsolatedConfig) X(PyConfig_SetBytesString) X(PyConfig_Clear) \
    X(Py_InitializeFromConfig) X(PyStatus_Exception) X(PyGILState_Ensure) X(PyGILState_Release) \
    X(PyGILState_Check) X(PyGILState_GetThisThreadState) X(PyEval_SaveThread) \
    X(PyEval_RestoreThread) X(PyThreadState_Clear) X(PyThreadState_DeleteCurrent) \
    X(PyImport_ImportModule) X(PyObject_GetAttrString) X(PyObject_CallMethod) X(PyObject_CallObject) X(PyObject_Str) \
    X(PyTuple_New) X(PyTuple_SetItem) X(PyTuple_GetItem) X(PyTuple_Size) X(PyLong_FromLongLong) \
    X(PyLong_FromUnsignedLongLong) X(PyLong_AsUnsignedLongLongMask) X(PyUnicode_FromString) \
    X(PyUnicode_DecodeFSDefault) X(PyUnicode_AsUTF8) X(PyBool_FromLong) X(PyFloat_FromDouble) \
    X(PyFloat_AsDouble) X(PyErr_Fetch) X(PyErr_Clear) X(Py_IncRef) X(Py_DecRef)

static struct {
#define X(name) __typeof__(&name) name;
    PYTHON(X)
#undef X
    PyObject *None;
} py;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static enum { IDLE, STARTING, INTERPRETER, STARTED, BROKEN } state;  /* atomic; STARTED: the package is imported */
static int forked;                           /* 1 in a child whose parent had begun to start Python */
static char start_fault[TEXT];               /* why the state is BROKEN */
static PyObject *targets;                    /* a tuple of Python functions, in the order of entries */
static PyObject *dispatch_module;               /* pooltide.c.dispatch */
static const int64_t (*guards)[2];           /* device addresses: [start, end), until start is 0 */
static int own_interpreter;                  /* this library started the interpreter */
static pthread_key_t thread_state_key;       /* its destructor frees a thread's Python state */

static _Thread_local char message[TEXT];     /* the text that aclGetRecentErrMsg returns */
static _Thread_local int attached;           /* this thread has made a call */
static _Thread_local const char *last_call;  /* the name of this thread's last call */

/* Append a text of any length to a message, cut between two UTF-8 characters. */
static void append_text(char *target, const char *text) {
    const size_t used = strlen(target), room = TEXT - 1 - used;
    size_t length = strnlen(text, room);
    while (length == room && length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) length--;
    memcpy(target + used, text, length);
    target[used + length] = 0;
}

static void copy_text(char *target, const char *text) {
    *target = 0;
    append_text(target, text);
}

/* Say why Python can't start; returns 0. */
static int cannot_start(const char *what, const char *detail) {
    char text[TEXT];
    snprintf(text, sizeof text, "%s: %s; install pooltide again, run `pooltide cflags`, then start the program again.",
             what, detail && *detail ? detail : "no reason given");
    copy_text(start_fault, text);
    return 0;
}

/* Say that the process runs another Python; returns 0. */
static int other_python(const char *version) {
    snprintf(start_fault, sizeof start_fault,
             "this library was built for Python " POOLTIDE_VERSION ", and the process runs Python %.40s; "
             "run the program with Python " POOLTIDE_VERSION ", or install pooltide for the other and build it there.",
             version);
    return 0;
}

/* Copy and clear the pending exception's text. */
static void take_exception(char *text) {
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    py.PyErr_Fetch(&type, &value, &trace);
    PyObject *words = value ? py.PyObject_Str(value) : NULL;
    const char *utf8 = words ? py.PyUnicode_AsUTF8(words) : NULL;
    copy_text(text, utf8 ? utf8 : "an exception without a text");
    py.PyErr_Clear();
    if (words) py.Py_DecRef(words);
    if (type) py.Py_DecRef(type);
    if (value) py.Py_DecRef(value);
    if (trace) py.Py_DecRef(trace);
}

/* Find Python's functions: in the process if it runs Python, else in POOLTIDE_LIBPYTHON. */
static int find_python(void) {
    void *library = RTLD_DEFAULT;
    int (*running)(void) = (int (*)(void))(Word)dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    if (running == NULL || !running()) {
        library = dlopen(POOLTIDE_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL);
        if (library == NULL) return cannot_start("libpython can't be loaded", dlerror());
    }
#define X(symbol) \
    if ((py.symbol = (__typeof__(py.symbol))(Word)dlsym(library, #symbol)) == NULL) \
        return cannot_start("libpython lacks a function", #symbol);
    PYTHON(X)
#undef X
    py.None = dlsym(library, "_Py_NoneStruct");
    size_t known = strlen(POOLTIDE_VERSION);
    if (strncmp(py.Py_GetVersion(), POOLTIDE_VERSION, known) != 0 || py.Py_GetVersion()[known] != '.')
        return other_python(py.Py_GetVersion());
    return py.None != NULL;
}

static int initialize(void) {
    PyPreConfig pre;
    py.PyPreConfig_InitIsolatedConfig(&pre);
    pre.utf8_mode = 1;
    /* A leak checker finds pointers in malloc's blocks, but not in Python's arenas. */
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
        return cannot_start("the interpreter " POOLTIDE_PYTHON " can't start", status.err_msg);
    return 1;
}

/* Import the Python side, with the GIL held; returns whether that was possible. */
static int import_dispatch_module(void) {
    char text[TEXT];
    PyObject *pair = NULL;
    dispatch_module = py.PyImport_ImportModule("pooltide.c.dispatch");
    if (dispatch_module != NULL) pair = py.PyObject_CallMethod(dispatch_module, "start", "Kssi",
                                                                    (unsigned long long)(Word)read_frames, POOLTIDE_FOLDERS, POOLTIDE_INTERFACE, own_interpreter);
    if (pair == NULL) {
        take_exception(text);
        return cannot_start("the package pooltide of " POOLTIDE_PYTHON " can't be loaded", text);
    }
    const char *refusal = py.PyUnicode_AsUTF8(pair);
    if (refusal != NULL) {
        snprintf(start_fault, sizeof start_fault, "%s, then start the program again.", refusal);
        return 0;
    }
    py.PyErr_Clear();
    targets = py.PyTuple_GetItem(pair, 0);
    guards = (const int64_t(*)[2])(Word)py.PyLong_AsUnsignedLongLongMask(py.PyTuple_GetItem(pair, 1));
    return 1;
}

/* Another thread of the parent may have been inside Python, so the child can't use its interpreter. */
static void in_child(void) {
    if (state == STARTING || state == INTERPRETER || state == STARTED) forked = 1;
    pthread_mutex_init(&starting, NULL);
}

static void free_thread_state(void *thread_state) {
    if (forked || !py.Py_IsInitialized()) return;
    py.PyEval_RestoreThread(thread_state);
    py.PyThreadState_Clear(thread_state);
    py.PyThreadState_DeleteCurrent();
}

#include "native_functions.h"
#include "segv_handler.h"
#include "process_exit.h"
#include "exit_report.h"
#include "early_answers.h"

static void on_main_end(void *key) {
    (void)key;
    __atomic_store_n(&main_ended, 1, __ATOMIC_SEQ_CST);
    if (!forked && __atomic_load_n(&state, __ATOMIC_SEQ_CST) == STARTED) start_watcher();
}

__attribute__((constructor)) static void on_load(void) {
    pthread_atfork(NULL, NULL, in_child);
    watch_main_thread(on_main_end);
    report_at_exit();
}

/* Find Python and, unless the process runs one already, start an interpreter. Returns the next state. */
static int start_interpreter(void) {
    if (!find_python()) return BROKEN;
    const int runs = py.Py_IsInitialized();
    if (!runs && !initialize()) return BROKEN;
    pthread_key_create(&thread_state_key, free_thread_state);
    own_interpreter = !runs;
    if (!runs) py.PyEval_SaveThread();  /* never finalized, as its threads may run until the process ends */
    return INTERPRETER;
}

/* Import the package and make the calls that were answered early. Returns the next state. */
static int start_package(void) {
    PyGILState_STATE gil = py.PyGILState_Ensure();
    int good = import_dispatch_module();
    if (good) catch_up();
    py.PyGILState_Release(gil);
    if (good && own_interpreter) handle_faults();
    return good ? STARTED : BROKEN;
}

/* Go on to a later state, once. Threads that NumPy starts meanwhile inherit the name of this one. */
static void advance(int from, int (*step)(void)) {
    char name[16];  /* what the system allows */
    pthread_mutex_lock(&starting);
    if (state == from) {
        __atomic_store_n(&state, STARTING, __ATOMIC_RELEASE);
        prctl(PR_GET_NAME, name);
        prctl(PR_SET_NAME, THREAD_NAME);
        const int next = step();
        prctl(PR_SET_NAME, name);
        __atomic_store_n(&state, next, __ATOMIC_SEQ_CST);
        if (next == STARTED && __atomic_load_n(&main_ended, __ATOMIC_SEQ_CST)) start_watcher();
    }
    pthread_mutex_unlock(&starting);
}

/* Start Python at the first call; with `package`, also import the package. Returns NULL, or why Python
 * can't be called. */
static const char *ensure_started(int package) {
    if (!forked && __atomic_load_n(&state, __ATOMIC_ACQUIRE) < INTERPRETER) advance(IDLE, start_interpreter);
    if (!forked && package && __atomic_load_n(&state, __ATOMIC_ACQUIRE) < STARTED) advance(INTERPRETER, start_package);
    if (forked)
        return "this process was forked from one that had called the runtime; "
               "fork before the first call, or call from the parent.";
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == BROKEN) return start_fault;
    return own_interpreter || py.Py_IsInitialized() ? NULL : "the Python of this process has ended; call before its end.";
}

/* Fail without Python: print why, and store it for aclGetRecentErrMsg. Needs little stack. */
static Word fail(const Entry *entry, const char *why) {
    if (entry->result == 's') return (Word)(*message ? message : why);
    if (entry->result == 'c') return (Word) "";
    copy_text(message, entry->name);
    append_text(message, ": ");
    append_text(message, why);
    struct iovec parts[] = {{"pooltide: ", 10}, {message, strlen(message)}, {"\n", 1}};
    if (writev(STDERR_FILENO, parts, 3) < 0) return entry->failure;  /* a stderr that is closed stops no program */
    return entry->failure;
}

static PyObject *none(void) {
    py.Py_IncRef(py.None);
    return py.None;
}

/* Item i of an array. */
static PyObject *item(char kind, const void *values, Word i) {
    switch (kind) {
        case 'a': return py.PyLong_FromLongLong(((const int64_t *)values)[i]);
        case 'b': return py.PyBool_FromLong(((const unsigned char *)values)[i] != 0);
        case 'e': return py.PyFloat_FromDouble(((const float *)values)[i]);
        default: {
            Word handle = ((const Word *)values)[i];
            return handle ? py.PyLong_FromUnsignedLongLong(handle) : none();
        }
    }
}

/* An array as a tuple; its length as an int if the array is longer than MAX_ARRAY. */
static PyObject *array(char kind, const void *values, Word length) {
    if (values == NULL && length > 0) return none();
    if (length > MAX_ARRAY) return py.PyLong_FromUnsignedLongLong(length);
    PyObject *tuple = py.PyTuple_New((Py_ssize_t)length);
    for (Word i = 0; tuple != NULL && i < length; i++)
        py.PyTuple_SetItem(tuple, (Py_ssize_t)i, item(kind, values, i));
    return tuple;
}

static PyObject *as_python(char kind, Word word) {
    switch (kind) {
        case 'i': return py.PyLong_FromLongLong((int64_t)word);
        case 'u': return py.PyLong_FromUnsignedLongLong(word);
        case 's': return word ? py.PyUnicode_DecodeFSDefault((const char *)word) : none();
        case 'f':
        case 'd': {
            double value;
            memcpy(&value, &word, sizeof value);
            return py.PyFloat_FromDouble(value);
        }
        default: return word ? py.PyLong_FromUnsignedLongLong(word) : none();
    }
}

/* The words as a tuple: an out-parameter as its address, an array with its length as one item. */
static PyObject *pack(const char *kinds, const Word *words) {
    PyObject *items[32];
    int count = 0;
    for (int at = 0; *kinds; kinds++, at++) {
        if (*kinds == 'n') continue;
        if (strchr("abet", *kinds)) {
            items[count++] = array(kinds[0], (const void *)words[at], words[kinds[1] - '0']);
            kinds++;
        } else {
            items[count++] = as_python(*kinds, words[at]);
        }
    }
    PyObject *tuple = py.PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) py.PyTuple_SetItem(tuple, i, items[i]);
    return tuple;
}

/* An array for the caller, who frees it with delete[] in C++, with free in C: from operator new[] where the
 * process has C++, else from malloc. */
static int64_t *array_for_caller(PyObject *values) {
    Py_ssize_t length = py.PyTuple_Size(values);
    size_t size = (size_t)(length ? length : 1) * sizeof(int64_t);
    void *(*new_array)(size_t) = (void *(*)(size_t))(Word)dlsym(RTLD_DEFAULT, "_Znam");
    int64_t *copy = new_array ? new_array(size) : malloc(size);
    for (Py_ssize_t i = 0; copy != NULL && i < length; i++)
        copy[i] = (int64_t)py.PyLong_AsUnsignedLongLongMask(py.PyTuple_GetItem(values, i));
    return copy;
}

/* Store the value of an out-parameter. */
static void store(char kind, void *target, PyObject *value) {
    if (kind == 'g') {
        *(float *)target = (float)py.PyFloat_AsDouble(value);
    } else if (kind == 'x') {
        *(int64_t **)target = array_for_caller(value);
    } else {
        uint64_t word = py.PyLong_AsUnsignedLongLongMask(value);
        uint32_t half = (uint32_t)word;
        if (kind == 'q') memcpy(target, &half, sizeof half);
        else memcpy(target, &word, sizeof word);
    }
}

/* Store the values of the out-parameters and return the result. The answer is (the values, or None to
 * leave them unchanged; the result). */
static Word unpack(const Entry *entry, PyObject *answer, const Word *words) {
    PyObject *outs = py.PyTuple_GetItem(answer, 0), *result = py.PyTuple_GetItem(answer, 1);
    int next = 0;
    for (int i = 0, at = 0; entry->kinds[i] && outs != py.None; i++, at++) {
        char kind = entry->kinds[i];
        if (strchr("abet", kind)) i++;
        if (strchr("oqgx", kind)) store(kind, (void *)words[at], py.PyTuple_GetItem(outs, next++));
    }
    if (result == py.None) return 0;
    if (entry->result == 'c') return (Word)py.PyUnicode_AsUTF8(result);
    if (entry->result != 's') return (Word)py.PyLong_AsUnsignedLongLongMask(result);
    const char *text = py.PyUnicode_AsUTF8(result);
    copy_text(message, text ? text : "");
    return (Word)message;
}

__attribute__((noinline)) static Word call_with_stack(int index, const Word *words) {
    const Entry *entry = &entries[index];
    Word result = entry->failure;
    char text[TEXT];
    const char *why = ensure_started(0);
    if (why == NULL && answer_early(entry, words, &result)) return result;
    if (why == NULL) why = ensure_started(1);
    if (why != NULL) return fail(entry, why);
    last_call = entry->name;
    PyThreadState *known = attached ? NULL : py.PyGILState_GetThisThreadState();
    PyGILState_STATE gil = py.PyGILState_Ensure();
    if (!attached && known == NULL) {
        /* A second reference, so that this thread's Python state lasts until the thread ends. */
        py.PyGILState_Ensure();
        pthread_setspecific(thread_state_key, py.PyGILState_GetThisThreadState());
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
        take_exception(text);
    }
    py.PyGILState_Release(gil);
    return answer != NULL ? result : fail(entry, text);
}

/* How many KB are left of this thread's stack. A call on another stack, as coroutines have, has enough of it. */
static size_t stack_left(void) {
    static _Thread_local char *low, *high;
    char *const here = __builtin_frame_address(0);
    pthread_attr_t attributes;
    if (high == NULL) {
        void *start = here;
        size_t size = 1;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            pthread_attr_getstack(&attributes, &start, &size);
            pthread_attr_destroy(&attributes);
        }
        low = start, high = low + size;
    }
    return here < low || here >= high ? SIZE_MAX : (size_t)(here - low) >> 10;
}

static Word call_python(int index, const Word *words, Word caller) {
    char why[160];
    int cancellation;
    Word result;
    /* A thread that is cancelled inside Python would leave its lock held, so it ends after the call. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
    const size_t left = stack_left();
    if (left < STACK_KB) {
        snprintf(why, sizeof why, "%zu KB of the thread's stack are left; %d KB must be (see pthread_attr_setstacksize).",
                 left, STACK_KB);
        result = fail(&entries[index], why);
    } else {
        collect_frames(caller);
        result = call_with_stack(index, words);
        frame_count = 0;
    }
    pthread_setcancelstate(cancellation, NULL);
    return result;
}

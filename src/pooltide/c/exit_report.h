/* The end of a process: Python prints what the program left behind, and may choose the exit status.
 *
 * The handler is registered when the library is loaded, so it runs after the destructors of global objects,
 * which may free what they own. Another thread calls Python, as at a fault. Only glibc tells the exit status. */

typedef struct {
    int status;  /* of the process */
    int chosen;  /* 0, or the status instead of `status` */
} Ending;

static void *end_in_python(void *argument) {
    Ending *ending = argument;
    PyGILState_STATE gil = py.PyGILState_Ensure();
    PyObject *chosen = py.PyObject_CallMethod(dispatch_module, "end_process", "i", ending->status);
    if (chosen != NULL) {
        ending->chosen = (int)py.PyLong_AsUnsignedLongLongMask(chosen);
        py.Py_DecRef(chosen);
    }
    py.PyErr_Clear();
    py.PyGILState_Release(gil);
    return NULL;
}

static void on_process_exit(int status, void *nothing) {
    static Ending ending;  /* static, as the other thread may use it after this function returns */
    static int ended;
    pthread_t thread;
    struct timespec end;
    (void)nothing;
    /* In a call: a signal handler or another thread's call of exit() came in between; Python may be locked. */
    if (ended || forked || !own_interpreter || state != STARTED || frame_count != 0) return;
    ended = 1;
    ending.status = status;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 60;
    if (pthread_create(&thread, NULL, end_in_python, &ending) != 0) return;
    if (pthread_timedjoin_np(thread, NULL, &end) == 0 && ending.chosen != 0) exit(ending.chosen);
}

static void report_at_exit(void) {
#ifdef __GLIBC__
    on_exit(on_process_exit, NULL);
#endif
}

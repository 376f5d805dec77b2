/* A host that touches device memory: say so, then let the fault do what it did before.
 *
 * The handler runs on the thread's alternate stack if it has one, so that a program's own handler
 * for stack overflow, which is called next, can run. Such a stack may be too small for Python, so
 * another thread says the line. */

typedef struct {
    int64_t address;
    int writes;          /* 1: it wrote; 0: it read; -1: unknown */
    const char *latest;  /* the name of the thread's last call */
} Touch;

static struct sigaction before;  /* what SIGSEGV did */

static void *say_touched(void *argument) {
    const Touch *touch = argument;
    PyGILState_STATE gil = py.PyGILState_Ensure();
    PyObject *done = py.PyObject_CallMethod(door, "touched", "Lis", (long long)touch->address, touch->writes,
                                            touch->latest);
    if (done == NULL) py.PyErr_Clear();
    else py.Py_DecRef(done);
    py.PyGILState_Release(gil);
    return NULL;
}

/* Say the line from another thread. If it can't be said within 5 seconds, the program goes on. */
static void report(int64_t address, int writes) {
    static Touch touch;  /* outlives this frame: the other thread may be late */
    pthread_t thread;
    struct timespec end;
    touch = (Touch){address, writes, latest ? latest : ""};
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 5;
    if (pthread_create(&thread, NULL, say_touched, &touch) == 0) pthread_timedjoin_np(thread, NULL, &end);
}

/* Do what the program's own handler, or the system, does with this signal. */
static void pass_on(int number, siginfo_t *info, void *context) {
    const struct sigaction then = before;
    const int sent = info->si_code <= 0;  /* by kill() or raise(): no instruction will fault again */
    sigset_t self;
    if (then.sa_handler == SIG_IGN && sent) return;
    if (then.sa_handler == SIG_DFL || then.sa_handler == SIG_IGN) {
        sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        if (sent) raise(number);
        return;
    }
    if (then.sa_flags & SA_RESETHAND) before = (struct sigaction){.sa_handler = SIG_DFL};
    pthread_sigmask(SIG_BLOCK, &then.sa_mask, NULL);  /* our own return restores the mask */
    sigemptyset(&self);
    sigaddset(&self, number);
    if (then.sa_flags & SA_NODEFER) pthread_sigmask(SIG_UNBLOCK, &self, NULL);
    if (then.sa_flags & SA_SIGINFO) then.sa_sigaction(number, info, context);
    else then.sa_handler(number);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    const int64_t address = (int64_t)(Word)info->si_addr;
    const int error = errno;
    int device = 0, writes = -1;
    for (int i = 0; info->si_code > 0 && guards[i][0] != 0; i++)
        device |= guards[i][0] <= address && address < guards[i][1];
#ifdef __x86_64__
    writes = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#endif
    if (device && !forked && !py.PyGILState_Check()) report(address, writes);
    errno = error;
    pass_on(number, info, context);
}

static void handle_faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, NULL, &before);
    sigaction(SIGSEGV, &action, NULL);
}

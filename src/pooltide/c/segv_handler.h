/* The SIGSEGV handler: if the host accessed device memory, print a line; then pass the signal on. Host memory
 * that a queued copy uses is protected, too: after the line, the program goes on.
 *
 * The handler runs on the thread's alternate stack if there is one, so that a program's handler for
 * stack overflow, which is called next, can run. Such a stack may be too small for Python, so another
 * thread prints the line. */

#define FAULT_FRAMES 12

typedef struct {
    int64_t address;
    int writes;             /* 1: a write; 0: a read; -1: unknown */
    const char *last_call;  /* the name of the thread's last call */
    Word frames[FAULT_FRAMES];  /* the instruction and its callers, which a library's functions may be */
    int count;                  /* of the frames; 0: unknown */
    int again;                  /* 1: the host may access the address now */
} Access;

static pthread_mutex_t reporting = PTHREAD_MUTEX_INITIALIZER;

static struct sigaction previous;  /* the action of SIGSEGV before the first call */

static void *print_access(void *argument) {
    Access *access = argument;
    PyGILState_STATE gil = py.PyGILState_Ensure();
    PyObject *done = py.PyObject_CallMethod(dispatch_module, "report_host_access", "LisKi",
                                            (long long)access->address, access->writes, access->last_call,
                                            (unsigned long long)(Word)access->frames, access->count);
    if (done == NULL) {
        py.PyErr_Clear();
    } else {
        access->again = (int)py.PyLong_AsUnsignedLongLongMask(done);
        py.Py_DecRef(done);
    }
    py.PyGILState_Release(gil);
    return NULL;
}

/* Print the line from another thread, and wait for that thread for at most 5 seconds. Returns whether the
 * instruction can be run again. */
static int report(int64_t address, int writes, Word place) {
    static Access access;  /* static, as the other thread may read it after this function returns */
    pthread_t thread;
    struct timespec end;
    int again = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 5;
    if (pthread_mutex_timedlock(&reporting, &end) != 0) return 0;
    access = (Access){.address = address, .writes = writes, .last_call = last_call ? last_call : ""};
    if (place) access.count = walk_from(place, access.frames, FAULT_FRAMES);
    if (pthread_create(&thread, NULL, print_access, &access) == 0 && pthread_timedjoin_np(thread, NULL, &end) == 0)
        again = access.again;
    pthread_mutex_unlock(&reporting);
    return again;
}

/* Do what the program's handler, or the system, does with this signal. */
static void pass_on(int number, siginfo_t *info, void *context) {
    const struct sigaction then = previous;
    const int sent = info->si_code <= 0;  /* by kill() or raise(), so no instruction will fault again */
    sigset_t self;
    if (then.sa_handler == SIG_IGN && sent) return;
    if (then.sa_handler == SIG_DFL || then.sa_handler == SIG_IGN) {
        sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        if (sent) raise(number);
        return;
    }
    if (then.sa_flags & SA_RESETHAND) previous = (struct sigaction){.sa_handler = SIG_DFL};
    pthread_sigmask(SIG_BLOCK, &then.sa_mask, NULL);  /* the return from on_fault restores the mask */
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
    Word place = 0;
    for (int i = 0; info->si_code > 0 && guards[i][0] != 0; i++)
        device |= guards[i][0] <= address && address < guards[i][1];
#ifdef __x86_64__
    writes = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    place = (Word)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    place = (Word)((ucontext_t *)context)->uc_mcontext.pc;
#endif
    const int again = device && !forked && !py.PyGILState_Check() && report(address, writes, place);
    errno = error;
    if (again) return;
    pass_on(number, info, context);
}

static void handle_faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, NULL, &previous);
    sigaction(SIGSEGV, &action, NULL);
}

/* The program's handler for stack overflow, on an alternate stack, must still run after aclInit. The
 * argument names the program's action for SIGSEGV: siginfo or plain (a handler), ignored or default. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl/acl.h"

static sigjmp_buf back;
static volatile int sink;

static void plain(int number) { siglongjmp(back, number); }
static void with_info(int number, siginfo_t *info, void *context) {
    (void)context;
    siglongjmp(back, info->si_addr != NULL ? number : -1);
}

static int deeper(int depth) {
    volatile char frame[4096];
    frame[depth % 4096] = (char)depth;
    if (depth < 0) return 0; /* never: compilers warn of a recursion without an end */
    sink = deeper(depth + 1) + frame[depth % 4096];
    return sink;
}

int main(int count, char **arguments) {
    static char memory[65536];
    const char *which = count == 2 ? arguments[1] : "siginfo";
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_flags = SA_ONSTACK};
    if (strcmp(which, "siginfo") == 0) {
        action.sa_sigaction = with_info;
        action.sa_flags |= SA_SIGINFO;
    } else {
        action.sa_handler = strcmp(which, "plain") == 0 ? plain : strcmp(which, "ignored") == 0 ? SIG_IGN : SIG_DFL;
    }
    if (sigaltstack(&stack, NULL) || sigaction(SIGSEGV, &action, NULL)) return 2;
    if (aclInit(NULL)) return 2;
    if (strcmp(which, "ignored") == 0) raise(SIGSEGV);
    for (volatile int round = 0; round < 3; round++) {
        int number = sigsetjmp(back, 1);
        if (number == 0) deeper(0);
        if (number != SIGSEGV) return 3;
        puts("handled");
        fflush(stdout);
    }
    return aclFinalize();
}

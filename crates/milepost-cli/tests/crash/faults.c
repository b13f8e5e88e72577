/* Loaded into the program under test (LD_PRELOAD): strikes at the first to last call of one kind, counted over all
 * threads, which no tracer does. FAULT is "CALL ACTION FIRST LAST": CALL is sync or write; ACTION is kill-before,
 * kill-after, or the number of the error that the call answers without doing anything. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char call[16], action[16];
static long first, last;
static atomic_long calls;

__attribute__((constructor)) static void read_orders(void) {
    const char *fault = getenv("FAULT");
    if (!fault || sscanf(fault, "%15s %15s %ld %ld", call, action, &first, &last) != 4) {
        fputs("FAULT is not understood\n", stderr);
        _exit(99);
    }
    /* What the program starts is not under test. */
    unsetenv("LD_PRELOAD");
    unsetenv("FAULT");
}

static int strikes(const char *now) {
    if (strcmp(call, now)) return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    return first <= number && number <= last;
}

static void die_if(int struck, const char *when) {
    if (!struck || strcmp(action, when)) return;
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static int error_of(int struck) {
    return struck ? atoi(action) : 0;
}

#define AROUND(KIND, RESULT, NAME, REAL_CALL, ...)                     \
    {                                                                  \
        static RESULT (*real)(__VA_ARGS__);                            \
        if (!real) real = (RESULT(*)(__VA_ARGS__))dlsym(RTLD_NEXT, NAME); \
        int struck = strikes(KIND);                                    \
        die_if(struck, "kill-before");                                 \
        if (error_of(struck)) {                                        \
            errno = error_of(struck);                                  \
            return -1;                                                 \
        }                                                              \
        RESULT result = real REAL_CALL;                                \
        die_if(struck, "kill-after");                                  \
        return result;                                                 \
    }

int fsync(int fd) AROUND("sync", int, "fsync", (fd), int)
int fdatasync(int fd) AROUND("sync", int, "fdatasync", (fd), int)
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
    AROUND("write", ssize_t, "pwrite64", (fd, bytes, length, offset), int, const void *, size_t, off64_t)

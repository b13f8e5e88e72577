/* Loaded into the program under test (LD_PRELOAD): a wall clock that is wrong by as many seconds as the file CLOCK says,
 * eight bytes in the machine's order, which may change at any time. No other clock is touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *wrong_by;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *seconds = mmap(NULL, sizeof *wrong_by, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || seconds == MAP_FAILED) {
        fputs("CLOCK is not understood\n", stderr);
        _exit(99);
    }
    close(fd);
    wrong_by = seconds;
    /* What the program starts has the right time, and writes it down. */
    unsetenv("LD_PRELOAD");
    unsetenv("CLOCK");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (typeof(real))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (!answer && wrong_by && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *wrong_by;
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (typeof(real))dlsym(RTLD_NEXT, "gettimeofday");
    int answer = real(now, zone);
    if (!answer && wrong_by) now->tv_sec += *wrong_by;
    return answer;
}

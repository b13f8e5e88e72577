/* Loaded into the program under test (LD_PRELOAD): writes down, in one order over all threads, what it does to the files
 * of its store, for a test to play back as a disk that loses power. TRACE is the file to append to. The records are
 *   C NAME            the file was created         U NAME   it was removed
 *   W NAME AT LENGTH  these bytes were written, which follow the line
 *   T NAME LENGTH     it was cut off or extended   S NAME   it was synced      D   the folder was synced
 * A write is noted before it is made and a sync after it: whatever the program says to others comes after the syncs that it
 * waited for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int trace = -1;
static char folder[PATH_MAX];
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

#define REAL(NAME) ((typeof(&NAME))real(#NAME))

static void *real(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TRACE");
    if (!path || !getcwd(folder, sizeof folder)
        || (trace = REAL(open64)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0) {
        fputs("TRACE is not understood\n", stderr);
        _exit(99);
    }
    /* What the program starts is not under test. */
    unsetenv("LD_PRELOAD");
    unsetenv("TRACE");
}

/* The store's own name of a file, or NULL for one that does not count. */
static const char *counts(const char *path) {
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    static const char *names[] = {"milepost.db", "milepost.db-wal", "milepost.db-journal"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) return names[i];
    return NULL;
}

static const char *path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

static void note(const void *bytes, size_t length, const char *format, ...) {
    char line[128];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    struct iovec parts[2] = {{line, size}, {(void *)bytes, length}};
    if (writev(trace, parts, length ? 2 : 1) != (ssize_t)(size + length)) abort();
}

/* Under the lock, so that the order of the trace is that of the disk. */
#define ORDERLY(WORK)                  \
    do {                               \
        pthread_mutex_lock(&turn);     \
        WORK;                          \
        pthread_mutex_unlock(&turn);   \
    } while (0)

static int open_noted(int (*really)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    const char *name = counts(path);
    if (!name || !(flags & O_CREAT)) return really(path, flags, mode);
    int fd;
    ORDERLY({
        int is_new = access(path, F_OK);
        fd = really(path, flags, mode);
        if (is_new && fd >= 0) note(NULL, 0, "C %s\n", name);
    });
    return fd;
}

#define OPEN(NAME)                                       \
    int NAME(const char *path, int flags, ...) {         \
        va_list values;                                  \
        va_start(values, flags);                         \
        mode_t mode = va_arg(values, mode_t);            \
        va_end(values);                                  \
        return open_noted(REAL(NAME), path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int unlink(const char *path) {
    const char *name = counts(path);
    int done;
    ORDERLY({
        done = REAL(unlink)(path);
        if (name && !done) note(NULL, 0, "U %s\n", name);
    });
    return done;
}

#define WRITE(NAME, OFFSET)                                                                    \
    ssize_t NAME(int fd, const void *bytes, size_t length, OFFSET offset) {                    \
        char path[PATH_MAX];                                                                   \
        const char *name = counts(path_of(fd, path));                                          \
        if (!name) return REAL(NAME)(fd, bytes, length, offset);                               \
        ssize_t done;                                                                          \
        ORDERLY({                                                                              \
            note(bytes, length, "W %s %lld %zu\n", name, (long long)offset, length);           \
            done = REAL(NAME)(fd, bytes, length, offset);                                      \
            if (done != (ssize_t)length) abort();                                              \
        });                                                                                    \
        return done;                                                                           \
    }
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)

#define TRUNCATE(NAME, OFFSET)                                               \
    int NAME(int fd, OFFSET length) {                                        \
        char path[PATH_MAX];                                                 \
        const char *name = counts(path_of(fd, path));                        \
        int done;                                                            \
        ORDERLY({                                                            \
            if (name) note(NULL, 0, "T %s %lld\n", name, (long long)length); \
            done = REAL(NAME)(fd, length);                                   \
        });                                                                  \
        return done;                                                         \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(NAME)                                                   \
    int NAME(int fd) {                                               \
        char path[PATH_MAX];                                         \
        const char *name = counts(path_of(fd, path));                \
        int done;                                                    \
        ORDERLY({                                                    \
            done = REAL(NAME)(fd);                                   \
            if (name && !done) note(NULL, 0, "S %s\n", name);        \
            if (!strcmp(path, folder) && !done) note(NULL, 0, "D\n"); \
        });                                                          \
        return done;                                                 \
    }
SYNC(fsync)
SYNC(fdatasync)

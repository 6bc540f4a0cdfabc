/* Stands between a process and the C library, for the files below one folder: counts the calls that
 * change or open files, has a chosen one of them fail, tear or be the process's last, and records
 * what was written. Preloaded (LD_PRELOAD), it hears every library's calls, libtorch's included.
 *
 * A process makes its control block by `interpose`; forked processes share it. Without one, all
 * calls pass. `interposer.py` has the same block.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, FSYNC, LINK, RENAME, UNLINK, TRUNCATE, CREATE, KINDS };
enum { NOTHING, SIGNAL, FAIL, TEAR };
#define ANY (-1)

typedef struct {
    int32_t watching;    /* 0: all calls pass, uncounted */
    int32_t kind;        /* of the call that gets the fault, or ANY of those in `concerned` */
    int32_t action;
    int32_t value;       /* the signal or the error */
    int32_t concerned;   /* a bit a kind: the calls that can have this fault */
    int32_t lasting;     /* 1: those that follow fail alike */
    int32_t fired;       /* 1 once the fault was done */
    int32_t pid;         /* of the process that had it */
    int32_t trace;       /* descriptor to record what is written, or -1 */
    int32_t share;       /* of a torn write that reaches the file, in 1/1000 */
    int64_t nth;         /* which call of the kind gets the fault, from 1 on */
    int64_t counts[KINDS];
    char folder[PATH_MAX];
} Control;

typedef struct {
    int32_t kind;
    uint32_t path_bytes, target_bytes, data_bytes;
    uint64_t inode;
    int64_t offset;
} Record;

static Control *control;

/* The control block, which is never unmapped: calls come until the process has ended. */
Control *interpose(void) {
    if (!control) {
        void *block = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        control = block == MAP_FAILED ? NULL : block;
    }
    return control;
}

#define NEXT(result, name, ...) \
    static result (*next)(__VA_ARGS__); \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

static int is_below(const char *path) {
    size_t length = strlen(control->folder);
    return strncmp(path, control->folder, length) == 0 && (path[length] == '/' || !path[length]);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

/* Makes `name` absolute; whether this library is to see to it. */
static int concerns(int folder, const char *name, char *path) {
    if (!control || !control->watching || !name) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return is_below(path);
    }
    char start[PATH_MAX];
    if (folder == AT_FDCWD ? !getcwd(start, sizeof start) : !path_of(folder, start)) return 0;
    return (size_t)snprintf(path, PATH_MAX, "%s/%s", start, name) < PATH_MAX && is_below(path);
}

static int concerns_fd(int fd, char *path) {
    int saved = errno;
    int does = control && control->watching && path_of(fd, path) && is_below(path);
    errno = saved;
    return does;
}

enum { PASSES, FAILS, TEARS };

/* Counts a call, and does the fault where this is its call. */
static int meet(int kind) {
    int bit = 1 << kind;
    if (control->fired && control->lasting && (control->concerned & bit)) {
        errno = control->value;
        return FAILS;
    }
    int64_t count = __atomic_add_fetch(&control->counts[kind], 1, __ATOMIC_SEQ_CST);
    int is_it = control->kind == ANY ? control->concerned & bit : control->kind == kind;
    if (!control->action || !is_it || (control->kind != ANY && count < control->nth)) return PASSES;
    if (__atomic_exchange_n(&control->fired, 1, __ATOMIC_SEQ_CST)) return PASSES;
    control->pid = getpid();
    if (control->action == SIGNAL) {
        kill(getpid(), control->value);
        return PASSES;
    }
    if (control->action == TEAR && kind == WRITE) return TEARS;
    errno = control->value;
    return FAILS;
}

static void record(int kind, const char *path, const char *target, int fd, int64_t offset,
                   const void *data, size_t bytes) {
    if (control->trace < 0) return;
    int saved = errno;
    struct stat status = {0};
    if (fd >= 0) fstat(fd, &status); else lstat(target ? target : path, &status);
    Record head = {kind, strlen(path), target ? strlen(target) : 0, bytes, status.st_ino, offset};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path_bytes},
                            {(void *)target, head.target_bytes}, {(void *)data, bytes}};
    syscall(SYS_writev, control->trace, parts, 4);
    errno = saved;
}

/* --- open --- */

static int opens(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!concerns(folder, name, path)) return syscall(SYS_openat, folder, name, flags, mode);
    int writes = flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC);
    if (meet(writes ? OPEN : READ) == FAILS) return -1;
    int is_new = (flags & O_CREAT) && access(path, F_OK) != 0;
    int fd = syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0 && is_new) record(CREATE, path, NULL, fd, 0, NULL, 0);
    else if (fd >= 0 && (flags & O_TRUNC)) record(TRUNCATE, path, NULL, fd, 0, NULL, 0);
    return fd;
}

#define MODE_OF(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *name, int flags, ...) { MODE_OF(flags) return opens(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE_OF(flags) return opens(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE_OF(flags) return opens(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE_OF(flags) return opens(folder, name, flags, mode); }
int __open_2(const char *name, int flags) { return opens(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opens(AT_FDCWD, name, flags, 0); }
int __openat_2(int folder, const char *name, int flags) { return opens(folder, name, flags, 0); }
int __openat64_2(int folder, const char *name, int flags) { return opens(folder, name, flags, 0); }
int creat(const char *name, mode_t mode) { return opens(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return creat(name, mode); }

/* The C library opens and writes the files of streams by calls of its own: they are opened here, and
 * have no buffer, so that each fwrite is met as one write. */
static FILE *opens_stream(const char *name, const char *how) {
    int flags = how[0] == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | (how[0] == 'a' ? O_APPEND : O_TRUNC);
    if (strchr(how, '+')) flags = (flags & ~O_WRONLY) | O_RDWR;
    if (strchr(how, 'x')) flags |= O_EXCL;
    if (strchr(how, 'e')) flags |= O_CLOEXEC;
    int fd = opens(AT_FDCWD, name, flags, 0666);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, how);
    if (stream && how[0] != 'r') setvbuf(stream, NULL, _IONBF, 0);
    return stream;
}

FILE *fopen(const char *name, const char *how) {
    char path[PATH_MAX];
    NEXT(FILE *, fopen, const char *, const char *);
    return concerns(AT_FDCWD, name, path) ? opens_stream(name, how) : next(name, how);
}

FILE *fopen64(const char *name, const char *how) { return fopen(name, how); }

/* --- write --- */

static ssize_t writes(int fd, const void *data, size_t bytes, int64_t offset) {
    char path[PATH_MAX];
    int is_seen = concerns_fd(fd, path), met = is_seen ? meet(WRITE) : PASSES;
    if (met == FAILS) return -1;
    if (met == TEARS && bytes > 1) bytes = 1 + (bytes - 1) * control->share / 1000;
    ssize_t done = offset < 0 ? syscall(SYS_write, fd, data, bytes)
                              : syscall(SYS_pwrite64, fd, data, bytes, offset);
    if (is_seen && done >= 0) {
        int64_t start = offset < 0 ? lseek(fd, 0, SEEK_CUR) - done : offset;
        record(WRITE, path, NULL, fd, start, data, done);
    }
    if (met == TEARS && !control->lasting) kill(getpid(), SIGKILL);
    return done;
}

ssize_t write(int fd, const void *data, size_t bytes) { return writes(fd, data, bytes, -1); }
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return writes(fd, data, bytes, offset); }
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) { return writes(fd, data, bytes, offset); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    if (!concerns_fd(fd, path)) return syscall(SYS_writev, fd, parts, count);
    ssize_t all = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = parts[i].iov_len ? writes(fd, parts[i].iov_base, parts[i].iov_len, -1) : 0;
        if (done < 0) return all ? all : -1;
        all += done;
        if ((size_t)done < parts[i].iov_len) break;
    }
    return all;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    char path[PATH_MAX];
    NEXT(size_t, fwrite, const void *, size_t, size_t, FILE *);
    if (!size || !concerns_fd(fileno(stream), path)) return next(data, size, count, stream);
    ssize_t done = writes(fileno(stream), data, size * count, -1);
    return done < 0 ? 0 : done / size;
}

#define TRUNCATES(name, type) \
    int name(int fd, type length) { \
        char path[PATH_MAX]; \
        NEXT(int, name, int, type); \
        int is_seen = concerns_fd(fd, path); \
        if (is_seen && meet(TRUNCATE) == FAILS) return -1; \
        int failed = next(fd, length); \
        if (is_seen && !failed) record(TRUNCATE, path, NULL, fd, length, NULL, 0); \
        return failed; \
    }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

#define SYNCS(name) \
    int name(int fd) { \
        char path[PATH_MAX]; \
        NEXT(int, name, int); \
        int is_seen = concerns_fd(fd, path); \
        if (is_seen && meet(FSYNC) == FAILS) return -1; \
        int failed = next(fd); \
        if (is_seen && !failed) record(FSYNC, path, NULL, fd, 0, NULL, 0); \
        return failed; \
    }
SYNCS(fsync)
SYNCS(fdatasync)

/* --- names --- */

static int names(int kind, int from, const char *old, int to, const char *new, int flags) {
    char path[PATH_MAX], target[PATH_MAX];
    int call = kind == LINK ? SYS_linkat : SYS_renameat2;
    if (!concerns(to, new, target)) return syscall(call, from, old, to, new, flags);
    if (!concerns(from, old, path)) path[0] = 0;
    if (meet(kind) == FAILS) return -1;
    int failed = syscall(call, from, old, to, new, flags);
    if (!failed) record(kind, path, target, -1, 0, NULL, 0);
    return failed;
}

int link(const char *old, const char *new) { return names(LINK, AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) { return names(LINK, from, old, to, new, flags); }
int rename(const char *old, const char *new) { return names(RENAME, AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return names(RENAME, from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) { return names(RENAME, from, old, to, new, flags); }

static int unlinks(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    if (!concerns(folder, name, path)) return syscall(SYS_unlinkat, folder, name, flags);
    if (meet(UNLINK) == FAILS) return -1;
    int failed = syscall(SYS_unlinkat, folder, name, flags);
    if (!failed && !(flags & AT_REMOVEDIR)) record(UNLINK, path, NULL, -1, 0, NULL, 0);
    return failed;
}

int unlink(const char *name) { return unlinks(AT_FDCWD, name, 0); }
int unlinkat(int folder, const char *name, int flags) { return unlinks(folder, name, flags); }
int remove(const char *name) {
    struct stat status;
    return unlinks(AT_FDCWD, name, lstat(name, &status) == 0 && S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
}

/* A disk that fails, hangs or is slow, for a real process: loaded with LD_PRELOAD, told by a file.
 *
 * FAULTY_DISK names the file, relative to the directory the process starts in. Each line is
 *
 *     OPERATION FAULT [NUMBER]
 *
 *     sync | write | read       fsync and fdatasync; write, pwrite and pwritev; read, pread and preadv
 *     fail ERRNO                the call fails (5: EIO, 28: ENOSPC)
 *     hang                      the call waits until the line is gone
 *     slow MILLISECONDS         the call takes so much longer
 *
 * Only files whose path contains FAULTY_PATH (default: "/data/log/") are concerned. Without the file all is well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char control[PATH_MAX];
static char part[256] = "/data/log/";

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULTY_DISK"), *path = getenv("FAULTY_PATH");
    char here[PATH_MAX];
    if (path != NULL) snprintf(part, sizeof part, "%s", path);
    if (name == NULL) return;
    if (name[0] == '/' || getcwd(here, sizeof here) == NULL)
        snprintf(control, sizeof control, "%s", name);
    else if (snprintf(control, sizeof control, "%s/%s", here, name) >= (int)sizeof control)
        control[0] = 0;
}

static void rest(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Whether the file says something of this operation; what, and the number. System calls only: this runs inside
 * those that are replaced. */
static int told(const char *operation, char fault[16], long *number) {
    char text[512];
    int fd = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    long size = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (size <= 0) return 0;
    text[size] = 0;
    for (char *line = text; line != NULL && *line != 0;) {
        char name[16];
        *number = 0;
        if (sscanf(line, "%15s %15s %ld", name, fault, number) >= 2 && strcmp(name, operation) == 0) return 1;
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return 0;
}

static int is_ours(int fd) {
    char link[64], path[PATH_MAX];
    if (control[0] == 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return strstr(path, part) != NULL;
}

/* 0: go on; otherwise the call fails with this. */
static int fault(int fd, const char *operation) {
    int before = errno, result = 0;
    char what[16];
    long number;
    if (is_ours(fd) && told(operation, what, &number)) {
        if (strcmp(what, "fail") == 0) result = number > 0 ? (int)number : EIO;
        if (strcmp(what, "slow") == 0) rest(number);
        if (strcmp(what, "hang") == 0)
            while (told(operation, what, &number) && strcmp(what, "hang") == 0) rest(5);
    }
    errno = result != 0 ? result : before;
    return result;
}

#define REPLACE(result, name, operation, parameters, arguments)                    \
    result name parameters {                                                       \
        static result(*real) parameters;                                           \
        if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name);               \
        if (fault(fd, operation) != 0) return -1;                                  \
        return real arguments;                                                     \
    }

REPLACE(int, fsync, "sync", (int fd), (fd))
REPLACE(int, fdatasync, "sync", (int fd), (fd))
REPLACE(ssize_t, write, "write", (int fd, const void *bytes, size_t size), (fd, bytes, size))
REPLACE(ssize_t, pwrite, "write", (int fd, const void *bytes, size_t size, off_t at), (fd, bytes, size, at))
REPLACE(ssize_t, pwrite64, "write", (int fd, const void *bytes, size_t size, off64_t at), (fd, bytes, size, at))
REPLACE(ssize_t, pwritev, "write", (int fd, const struct iovec *all, int count, off_t at), (fd, all, count, at))
REPLACE(ssize_t, pwritev64, "write", (int fd, const struct iovec *all, int count, off64_t at), (fd, all, count, at))
REPLACE(ssize_t, read, "read", (int fd, void *bytes, size_t size), (fd, bytes, size))
REPLACE(ssize_t, pread, "read", (int fd, void *bytes, size_t size, off_t at), (fd, bytes, size, at))
REPLACE(ssize_t, pread64, "read", (int fd, void *bytes, size_t size, off64_t at), (fd, bytes, size, at))
REPLACE(ssize_t, preadv, "read", (int fd, const struct iovec *all, int count, off_t at), (fd, all, count, at))
REPLACE(ssize_t, preadv64, "read", (int fd, const struct iovec *all, int count, off64_t at), (fd, all, count, at))

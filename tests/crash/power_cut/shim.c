/* A power cut for an unmodified server: preloaded (LD_PRELOAD), it keeps for every file under NEOKV_CUT_FOLDER how to
 * take back what was written since the last fsync, and for every folder which names were made, moved or removed since
 * its last fsync. When told, it takes all of that back, or leaves a torn or patchy part of it, and ends the process.
 *
 *     write ──▶ remember old bytes and length ──▶ real write
 *     fsync ──▶ real fsync ──▶ forget what it covers
 *     cut   ──▶ (nobody can write any more) undo, newest first ──▶ _exit
 *
 * It is told through NEOKV_CUT_CONTROL, a file of 64-bit numbers mapped by both sides (enum below). It can also fail the
 * n-th fsync with EIO; as on Linux what that fsync should have written is lost, though later ones succeed. And it can
 * let writes that make files longer fail with ENOSPC.
 *
 * Not seen: stdio (fopen), mmap, raw system calls, copy_file_range. Servers write their data with write and pwrite.
 * sync_file_range promises nothing and is not counted as a sync. New folders are not taken back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
  WRITES, SYNCS, FAILURES, ENDED,                    /* counted here, read by the test */
  CUT_AT_WRITE, CUT_AT_SYNC, CUT_NOW, FAIL_AT_SYNC,  /* set by the test; 0: never */
  DISK_FULL, MODE, SEED, CUT_AT_END,
  CONTROLS = 64
};
enum { DROP, TEAR, PATCHY };
static volatile uint64_t *control;
static char folder[PATH_MAX], graves[PATH_MAX];
static size_t folder_len;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner;
static uint64_t sequence, grave_count;

/* ---- what can be taken back ---- */

struct change {                 /* of a file's content */
  uint64_t number;
  off_t offset, old_size;
  size_t length, kept;          /* written; old bytes kept (the rest was behind the end) */
  int lost;                     /* an fsync failed on it: never counts as synced */
  char *old;
};
struct file {
  dev_t device;
  ino_t inode;
  int own;                      /* our own descriptor, read and write */
  struct change *changes;
  size_t count, room;
  struct file *next;
};
static struct file *files[1024];

enum { MADE, MOVED, REMOVED };
struct name {                   /* change of a folder */
  uint64_t number;
  int what;
  dev_t device[2];              /* of the folders it was in and is in */
  ino_t inode[2];
  char *path, *to, *grave;      /* grave: a link to what was there before */
};
static struct name *names;
static size_t names_count, names_room;

#define REAL(result, name, ...) \
  static result (*real_##name)(__VA_ARGS__)
REAL(int, open, const char *, int, ...);
REAL(int, openat, int, const char *, int, ...);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
REAL(int, ftruncate, int, off_t);
REAL(int, fallocate, int, int, off_t, off_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, rename, const char *, const char *);
REAL(int, linkat, int, const char *, int, const char *, int);
REAL(int, unlink, const char *);
REAL(int, unlinkat, int, const char *, int);

static void find_real(void) {
  if (real_fdatasync) return;
#define FIND(name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)
  FIND(open); FIND(openat); FIND(write); FIND(pwrite); FIND(writev); FIND(pwritev); FIND(ftruncate);
  FIND(fallocate); FIND(fsync); FIND(rename); FIND(linkat); FIND(unlink); FIND(unlinkat); FIND(fdatasync);
}

static int link_real(const char *path, const char *to) { return real_linkat(AT_FDCWD, path, AT_FDCWD, to, 0); }

static int active(void) {
  return control && getpid() == owner;
}

static void fatal(const char *what) {
  dprintf(2, "power cut library: %s: %s\n", what, strerror(errno));
  _exit(99);
}

static void *grow(void *array, size_t count, size_t *room, size_t size) {
  if (count < *room) return array;
  *room = *room ? *room * 2 : 16;
  array = realloc(array, *room * size);
  if (!array) fatal("memory");
  return array;
}

static int in_folder(const char *path) {
  return strncmp(path, folder, folder_len) == 0 && (path[folder_len] == '/' || !path[folder_len]);
}

/* The path from the root, its folder resolved (the last part may not exist). NULL: elsewhere, or nowhere. */
static char *locate(int at, const char *path, char *out) {
  char full[PATH_MAX * 2], parent[PATH_MAX];
  if (path[0] != '/') {
    char base[PATH_MAX];
    if (at == AT_FDCWD) {
      if (!getcwd(base, sizeof base)) return NULL;
    } else {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", at);
      ssize_t n = readlink(link, base, sizeof base - 1);
      if (n < 0) return NULL;
      base[n] = 0;
    }
    snprintf(full, sizeof full, "%s/%s", base, path);
  } else {
    snprintf(full, sizeof full, "%s", path);
  }
  char *slash = strrchr(full, '/');
  if (!slash || !slash[1]) return NULL;
  *slash = 0;
  if (!realpath(*full ? full : "/", parent)) return NULL;
  snprintf(out, PATH_MAX, "%.*s/%.*s", PATH_MAX - 300, parent, 255, slash + 1);
  return in_folder(out) ? out : NULL;
}

static struct file *tracked(int fd, struct stat *info) {
  if (fstat(fd, info) || !S_ISREG(info->st_mode)) return NULL;
  for (struct file *file = files[info->st_ino % 1024]; file; file = file->next)
    if (file->inode == info->st_ino && file->device == info->st_dev) return file;
  return NULL;
}

static void track(int fd) {
  struct stat info;
  char link[64];
  if (tracked(fd, &info) || !S_ISREG(info.st_mode)) return;
  struct file *file = calloc(1, sizeof *file);
  if (!file) fatal("memory");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  file->own = real_open(link, O_RDWR | O_CLOEXEC);
  if (file->own < 0) { free(file); return; }
  file->inode = info.st_ino;
  file->device = info.st_dev;
  file->next = files[info.st_ino % 1024];
  files[info.st_ino % 1024] = file;
}

/* Before `length` bytes at `offset` change, or the size. */
static void remember(struct file *file, off_t offset, size_t length) {
  struct stat info;
  if (fstat(file->own, &info)) fatal("fstat");
  file->changes = grow(file->changes, file->count, &file->room, sizeof *file->changes);
  struct change *change = &file->changes[file->count++];
  memset(change, 0, sizeof *change);
  change->number = ++sequence;
  change->offset = offset;
  change->length = length;
  change->old_size = info.st_size;
  if (offset < info.st_size && length) {
    size_t kept = (off_t)length < info.st_size - offset ? length : (size_t)(info.st_size - offset);
    change->old = malloc(kept);
    if (!change->old) fatal("memory");
    ssize_t n = pread(file->own, change->old, kept, offset);
    if (n < 0) fatal("pread");
    change->kept = (size_t)n;
  }
}

static void forget(struct file *file, uint64_t up_to, int lost) {
  size_t kept = 0;
  for (size_t n = 0; n < file->count; n++) {
    struct change *change = &file->changes[n];
    if (change->number <= up_to && lost) change->lost = 1;
    if (change->number <= up_to && !change->lost) free(change->old);
    else file->changes[kept++] = *change;
  }
  file->count = kept;
}

static void folder_of(const char *path, dev_t *device, ino_t *inode) {
  char parent[PATH_MAX];
  struct stat info = {0};
  snprintf(parent, sizeof parent, "%s", path);
  *strrchr(parent, '/') = 0;
  stat(parent, &info);
  *device = info.st_dev;
  *inode = info.st_ino;
}

static void remember_name(int what, const char *path, const char *to, const char *grave) {
  names = grow(names, names_count, &names_room, sizeof *names);
  struct name *name = &names[names_count++];
  memset(name, 0, sizeof *name);
  name->number = ++sequence;
  name->what = what;
  name->path = strdup(path);
  name->to = to ? strdup(to) : NULL;
  name->grave = grave ? strdup(grave) : NULL;
  folder_of(path, &name->device[0], &name->inode[0]);
  folder_of(to ? to : path, &name->device[1], &name->inode[1]);
}

static void free_name(struct name *name) {
  if (name->grave) real_unlink(name->grave);
  free(name->path); free(name->to); free(name->grave);
}

/* A folder was synced. A move between two folders counts with either. */
static void forget_names(struct stat *info, uint64_t up_to) {
  size_t kept = 0;
  for (size_t n = 0; n < names_count; n++) {
    struct name *name = &names[n];
    int here = (name->device[0] == info->st_dev && name->inode[0] == info->st_ino) ||
               (name->device[1] == info->st_dev && name->inode[1] == info->st_ino);
    if (here && name->number <= up_to) free_name(name);
    else names[kept++] = *name;
  }
  names_count = kept;
}

/* A second name for a file, so that it outlives its first. */
static char *bury(const char *path, char *out) {
  snprintf(out, PATH_MAX, "%.*s/%llu", PATH_MAX - 32, graves, (unsigned long long)++grave_count);
  return link_real(path, out) ? NULL : out;
}

/* ---- the cut ---- */

static uint64_t roll(uint64_t sides) {
  static uint64_t state;
  if (!state) state = control[SEED] * 2654435761u + 88172645463325252u;
  state ^= state << 13; state ^= state >> 7; state ^= state << 17;
  return sides ? state % sides : 0;
}

static void put_back(struct file *file, struct change *change) {
  if (change->kept && real_pwrite(file->own, change->old, change->kept, change->offset) < 0) fatal("undo");
  if (real_ftruncate(file->own, change->old_size)) fatal("undo");
}

static void cut_file(struct file *file) {
  uint64_t mode = control[MODE];
  if (!file->count) return;
  if (mode == PATCHY && roll(3)) {
    /* The length is there, some pages of the content are not: old bytes, or zeros. */
    char page[4096];
    for (size_t n = file->count; n-- > 0;) {
      struct change *change = &file->changes[n];
      for (off_t at = change->offset / 4096 * 4096; at < change->offset + (off_t)change->length; at += 4096) {
        if (!change->lost && roll(2)) continue;
        off_t from = at < change->offset ? change->offset : at, to = at + 4096;
        if (to > change->offset + (off_t)change->length) to = change->offset + (off_t)change->length;
        memset(page, 0, sizeof page);
        off_t end = change->offset + (off_t)change->kept;
        if (from < end) memcpy(page, change->old + (from - change->offset), (size_t)((to < end ? to : end) - from));
        struct stat info;
        if (!fstat(file->own, &info) && from < info.st_size) {
          if (to > info.st_size) to = info.st_size;
          if (real_pwrite(file->own, page, (size_t)(to - from), from) < 0) fatal("undo");
        }
      }
    }
    return;
  }
  /* The oldest changes stay, the next one in part, the others go. */
  size_t keep = mode == TEAR ? roll(file->count + 1) : 0;
  for (size_t n = 0; n < keep; n++)
    if (file->changes[n].lost) keep = n;
  for (size_t n = file->count; n-- > keep + 1;) put_back(file, &file->changes[n]);
  if (keep == file->count) return;
  struct change *torn = &file->changes[keep];
  size_t prefix = mode == TEAR && !torn->lost ? roll(torn->length) : 0;
  char *start = malloc(prefix + 1);
  ssize_t have = prefix ? pread(file->own, start, prefix, torn->offset) : 0;
  put_back(file, torn);
  if (have > 0 && real_pwrite(file->own, start, (size_t)have, torn->offset) < 0) fatal("undo");
}

static void cut_name(struct name *name) {
  if (name->what == MADE) real_unlink(name->path);
  if (name->what == MOVED) real_rename(name->to, name->path);
  if (name->grave) {
    real_unlink(name->what == MOVED ? name->to : name->path);
    if (link_real(name->grave, name->what == MOVED ? name->to : name->path)) fatal("undo of a name");
  }
}

/* With the lock held: nobody writes any more, and nobody finishes an fsync. */
static void cut(void) {
  for (size_t bucket = 0; bucket < 1024; bucket++)
    for (struct file *file = files[bucket]; file; file = file->next) cut_file(file);
  /* Names are journalled in order: a tail of them is lost, with DROP all. */
  size_t keep = control[MODE] == DROP ? 0 : roll(names_count + 1);
  for (size_t n = names_count; n-- > keep;) cut_name(&names[n]);
  for (size_t n = 0; n < names_count; n++)
    if (names[n].grave) real_unlink(names[n].grave);
  control[ENDED] = 1;
  _exit(86);
}

static int reached(int counter, int limit) {
  control[counter]++;
  return control[limit] && control[counter] >= control[limit];
}

static void *watch(void *unused) {
  for (;;) {
    usleep(500);
    if (control[CUT_NOW]) {
      pthread_mutex_lock(&lock);
      cut();
    }
  }
  return unused;
}

__attribute__((constructor)) static void start(void) {
  find_real();
  const char *where = getenv("NEOKV_CUT_FOLDER"), *how = getenv("NEOKV_CUT_CONTROL"), *dead = getenv("NEOKV_CUT_GRAVES");
  if (!where || !how || !dead || !realpath(where, folder) || !realpath(dead, graves)) return;
  folder_len = strlen(folder);
  int fd = real_open(how, O_RDWR | O_CLOEXEC);
  if (fd < 0) fatal(how);
  control = mmap(NULL, CONTROLS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (control == MAP_FAILED) fatal("mmap");
  owner = getpid();
  grave_count = (uint64_t)owner << 32;
  pthread_t thread;
  pthread_create(&thread, NULL, watch, NULL);
}

/* A server that gives up, as after a failed fsync, loses power right behind that. */
static void end(void) {
  if (!active() || !control[CUT_AT_END]) return;
  pthread_mutex_lock(&lock);
  cut();
}
__attribute__((destructor)) static void at_exit(void) { end(); }
void abort(void) {
  static void (*real)(void) __attribute__((noreturn));
  end();
  *(void **)&real = dlsym(RTLD_NEXT, "abort");
  real();
}

/* ---- what the server calls ---- */

static int open_tracked(int at, const char *path, int flags, mode_t mode) {
  char full[PATH_MAX];
  find_real();
  if (!active() || !(flags & (O_WRONLY | O_RDWR)) || !locate(at, path, full)) return real_openat(at, path, flags, mode);
  pthread_mutex_lock(&lock);
  struct stat info;
  int there = !lstat(full, &info);
  /* O_TRUNC by hand, so that it can be taken back. */
  int fd = real_openat(at, path, flags & ~O_TRUNC, mode);
  if (fd >= 0) {
    track(fd);
    struct file *file = tracked(fd, &info);
    if (!there && file) remember_name(MADE, full, NULL, NULL);
    if (there && (flags & O_TRUNC) && file) {
      remember(file, 0, (size_t)info.st_size);
      if (real_ftruncate(file->own, 0)) fatal("truncate");
    }
  }
  int error = errno;
  pthread_mutex_unlock(&lock);
  errno = error;
  return fd;
}

#define MODE_OF(flags) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *path, int flags, ...) { MODE_OF(flags) return open_tracked(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return open_tracked(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int at, const char *path, int flags, ...) { MODE_OF(flags) return open_tracked(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE_OF(flags) return open_tracked(at, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return open_tracked(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_tracked(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* A write of any kind: `offset` < 0 means at the place of the descriptor. */
static ssize_t write_tracked(int fd, const struct iovec *parts, int count, off_t offset) {
  find_real();
  struct stat info;
  struct file *file = NULL;
  if (active()) {
    pthread_mutex_lock(&lock);
    file = tracked(fd, &info);
    if (!file) pthread_mutex_unlock(&lock);
  }
  if (!file) return offset < 0 ? real_writev(fd, parts, count) : real_pwritev(fd, parts, count, offset);
  size_t length = 0;
  for (int n = 0; n < count; n++) length += parts[n].iov_len;
  int flags = fcntl(fd, F_GETFL);
  off_t at = flags & O_APPEND ? info.st_size : offset < 0 ? lseek(fd, 0, SEEK_CUR) : offset;
  int full = control[DISK_FULL] && at + (off_t)length > info.st_size;
  ssize_t result = -1;
  int error = ENOSPC;
  int last = reached(WRITES, CUT_AT_WRITE);
  if (full) {
    control[FAILURES]++;
  } else {
    remember(file, at, length);
    result = offset < 0 ? real_writev(fd, parts, count) : real_pwritev(fd, parts, count, offset);
    error = errno;
    if (result >= 0 && flags & (O_SYNC | O_DSYNC)) forget(file, sequence, 0);
  }
  if (last) cut();
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}

ssize_t write(int fd, const void *bytes, size_t length) {
  find_real();
  if (!active()) return real_write(fd, bytes, length);
  struct iovec part = {(void *)bytes, length};
  return write_tracked(fd, &part, 1, -1);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
  find_real();
  struct iovec part = {(void *)bytes, length};
  return write_tracked(fd, &part, 1, offset);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) { return pwrite(fd, bytes, length, offset); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_tracked(fd, parts, count, -1); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return write_tracked(fd, parts, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return write_tracked(fd, parts, count, offset); }

int ftruncate(int fd, off_t length) {
  find_real();
  struct stat info;
  if (!active()) return real_ftruncate(fd, length);
  pthread_mutex_lock(&lock);
  struct file *file = tracked(fd, &info);
  if (file && length < info.st_size) remember(file, length, (size_t)(info.st_size - length));
  else if (file) remember(file, info.st_size, 0);
  int result = real_ftruncate(fd, length), error = errno;
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }
int truncate(const char *path, off_t length) {
  int fd = open_tracked(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
  if (fd < 0) return -1;
  int result = ftruncate(fd, length), error = errno;
  close(fd);
  errno = error;
  return result;
}
int truncate64(const char *path, off_t length) { return truncate(path, length); }

int fallocate(int fd, int mode, off_t offset, off_t length) {
  find_real();
  struct stat info;
  if (!active()) return real_fallocate(fd, mode, offset, length);
  pthread_mutex_lock(&lock);
  struct file *file = tracked(fd, &info);
  int result = -1, error = ENOSPC;
  if (file && control[DISK_FULL] && !(mode & FALLOC_FL_PUNCH_HOLE) && offset + length > info.st_size) {
    control[FAILURES]++;
  } else {
    int keeps = mode == FALLOC_FL_KEEP_SIZE;
    if (file && !keeps) remember(file, offset, mode ? (size_t)length : 0);
    result = real_fallocate(fd, mode, offset, length);
    error = errno;
  }
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int fallocate64(int fd, int mode, off_t offset, off_t length) { return fallocate(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return fallocate(fd, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int fd, off_t offset, off_t length) { return posix_fallocate(fd, offset, length); }

static int sync_tracked(int fd, int (*real)(int)) {
  find_real();
  struct stat info;
  if (!active() || fstat(fd, &info)) return real(fd);
  pthread_mutex_lock(&lock);
  struct file *file = tracked(fd, &info);
  uint64_t up_to = sequence;
  int fails = 0;
  if (file) {
    if (reached(SYNCS, CUT_AT_SYNC)) cut();
    fails = control[FAIL_AT_SYNC] && control[SYNCS] == control[FAIL_AT_SYNC];
    if (fails) {
      control[FAILURES]++;
      forget(file, up_to, 1);
    }
  }
  pthread_mutex_unlock(&lock);
  if (fails) {
    errno = EIO;
    return -1;
  }
  int result = real(fd), error = errno;
  pthread_mutex_lock(&lock);
  if (!result && file) forget(file, up_to, 0);
  if (!result && S_ISDIR(info.st_mode)) forget_names(&info, up_to);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int fsync(int fd) { find_real(); return sync_tracked(fd, real_fsync); }
int fdatasync(int fd) { find_real(); return sync_tracked(fd, real_fdatasync); }

int rename(const char *path, const char *to) {
  char from_full[PATH_MAX], to_full[PATH_MAX], grave[PATH_MAX];
  find_real();
  if (!active() || !locate(AT_FDCWD, path, from_full) || !locate(AT_FDCWD, to, to_full)) return real_rename(path, to);
  pthread_mutex_lock(&lock);
  char *buried = bury(to_full, grave);
  int result = real_rename(path, to), error = errno;
  if (!result) remember_name(MOVED, from_full, to_full, buried);
  else if (buried) real_unlink(buried);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int renameat(int from_at, const char *path, int to_at, const char *to) {
  char from_full[PATH_MAX], to_full[PATH_MAX];
  if (active() && locate(from_at, path, from_full) && locate(to_at, to, to_full)) return rename(from_full, to_full);
  static int (*real)(int, const char *, int, const char *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "renameat");
  return real(from_at, path, to_at, to);
}

/* A further name of a file: as a new one, until its folder is synced. */
int linkat(int from_at, const char *path, int to_at, const char *to, int flags) {
  char full[PATH_MAX];
  find_real();
  if (!active() || !locate(to_at, to, full)) return real_linkat(from_at, path, to_at, to, flags);
  pthread_mutex_lock(&lock);
  int result = real_linkat(from_at, path, to_at, to, flags), error = errno;
  if (!result) remember_name(MADE, full, NULL, NULL);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int link(const char *path, const char *to) { return linkat(AT_FDCWD, path, AT_FDCWD, to, 0); }

static int unlink_tracked(int at, const char *path, int flags) {
  char full[PATH_MAX], grave[PATH_MAX];
  find_real();
  if (!active() || flags & AT_REMOVEDIR || !locate(at, path, full)) return real_unlinkat(at, path, flags);
  pthread_mutex_lock(&lock);
  char *buried = bury(full, grave);
  int result = real_unlinkat(at, path, flags), error = errno;
  if (!result) remember_name(REMOVED, full, NULL, buried);
  else if (buried) real_unlink(buried);
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}
int unlink(const char *path) { return unlink_tracked(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return unlink_tracked(at, path, flags); }
int remove(const char *path) {
  struct stat info;
  if (!lstat(path, &info) && S_ISDIR(info.st_mode)) return rmdir(path);
  return unlink_tracked(AT_FDCWD, path, 0);
}

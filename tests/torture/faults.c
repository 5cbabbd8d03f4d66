/* Makes file operations fail on purpose: loaded with LD_PRELOAD, armed through ts_fault_arm.
 *
 * Operations on paths under the armed folder (and on files opened there) are counted; the one with the armed number
 * fails, and with `lasting` every one after it. A short operation moves half of what was asked. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHORT (-1) /* in place of an errno */
#define MOST_FILES 65536
#define MOST_OPERATIONS 65536

static char folder[4096];
static long number = -1, count;
static int error_of, lasts;
static char failed[64];
static unsigned char watched[MOST_FILES], movable[MOST_OPERATIONS];

void ts_fault_arm(const char *path, long at, int error, int lasting) {
  snprintf(folder, sizeof folder, "%s", path);
  number = at, count = 0, error_of = error, lasts = lasting, *failed = 0;
}

long ts_fault_count(void) {
  return count;
}

/* The first operation that was made to fail; empty if there was none. */
const char *ts_fault_name(void) {
  return failed;
}

/* Whether the operation of this number moved more than one byte, so that it can be short. */
int ts_fault_movable(long at) {
  return at >= 0 && at < MOST_OPERATIONS && movable[at];
}

__attribute__((constructor)) static void begin(void) {
  unsetenv("LD_PRELOAD"); /* compilers are not the subject */
}

static int is_ours(const char *path) {
  size_t length = strlen(folder);
  return length && path && strncmp(path, folder, length) == 0;
}

static int is_open_ours(int fd) {
  return *folder && fd >= 0 && fd < MOST_FILES && watched[fd];
}

/* Whether this operation fails; `halves` says that a short one is possible. Sets errno. */
static int fails(const char *name, int halves, int *half) {
  long mine = count++;
  if (mine < MOST_OPERATIONS) movable[mine] = (unsigned char)halves;
  if (number < 0 || (lasts ? mine < number : mine != number)) return 0;
  if (error_of == SHORT) {
    if (!halves) return 0;
    if (!*failed) snprintf(failed, sizeof failed, "%s", name);
    *half = 1;
    return 0;
  }
  if (!*failed) snprintf(failed, sizeof failed, "%s", name);
  errno = error_of;
  return 1;
}

#define REAL(type, name, ...)                                      \
  static type (*real)(__VA_ARGS__);                                \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name); \
  int half = 0;                                                    \
  (void)half

static int opened(int fd, int ours) {
  if (fd >= 0 && fd < MOST_FILES) watched[fd] = (unsigned char)ours;
  return fd;
}

#define MODE                               \
  mode_t mode = 0;                         \
  if (flags & (O_CREAT | __O_TMPFILE)) {   \
    va_list more;                          \
    va_start(more, flags);                 \
    mode = (mode_t)va_arg(more, unsigned); \
    va_end(more);                          \
  }

#define OPEN(name)                                                \
  int name(const char *path, int flags, ...) {                    \
    REAL(int, name, const char *, int, ...);                      \
    MODE if (is_ours(path) && fails("open", 0, &half)) return -1; \
    return opened(real(path, flags, mode), is_ours(path));        \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                     \
  int name(int at, const char *path, int flags, ...) {                   \
    REAL(int, name, int, const char *, int, ...);                        \
    MODE int ours = is_ours(path) || (*path != '/' && is_open_ours(at)); \
    if (ours && fails("open", 0, &half)) return -1;                      \
    return opened(real(at, path, flags, mode), ours);                    \
  }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
  REAL(int, close, int);
  if (fd >= 0 && fd < MOST_FILES) watched[fd] = 0;
  return real(fd);
}

#define ON_PATH(type, name, wrong, parameters, arguments, types) \
  type name parameters {                                         \
    REAL(type, name, types);                                     \
    if (is_ours(path) && fails(#name, 0, &half)) return wrong;   \
    return real arguments;                                       \
  }
#define LIST(...) __VA_ARGS__
ON_PATH(int, mkdir, -1, (const char *path, mode_t mode), (path, mode), LIST(const char *, mode_t))
ON_PATH(int, rmdir, -1, (const char *path), (path), LIST(const char *))
ON_PATH(int, unlink, -1, (const char *path), (path), LIST(const char *))
ON_PATH(int, rename, -1, (const char *path, const char *to), (path, to), LIST(const char *, const char *))
ON_PATH(int, access, -1, (const char *path, int mode), (path, mode), LIST(const char *, int))
ON_PATH(int, stat, -1, (const char *path, struct stat *about), (path, about), LIST(const char *, struct stat *))
ON_PATH(int, lstat, -1, (const char *path, struct stat *about), (path, about), LIST(const char *, struct stat *))
ON_PATH(int, stat64, -1, (const char *path, struct stat64 *about), (path, about), LIST(const char *, struct stat64 *))
ON_PATH(int, lstat64, -1, (const char *path, struct stat64 *about), (path, about), LIST(const char *, struct stat64 *))
ON_PATH(DIR *, opendir, NULL, (const char *path), (path), LIST(const char *))

#define ON_FILE(name, parameters, arguments, types)            \
  int name parameters {                                        \
    REAL(int, name, types);                                    \
    if (is_open_ours(fd) && fails(#name, 0, &half)) return -1; \
    return real arguments;                                     \
  }
ON_FILE(fsync, (int fd), (fd), LIST(int))
ON_FILE(fdatasync, (int fd), (fd), LIST(int))
ON_FILE(ftruncate, (int fd, off_t size), (fd, size), LIST(int, off_t))
ON_FILE(ftruncate64, (int fd, off64_t size), (fd, size), LIST(int, off64_t))
ON_FILE(flock, (int fd, int operation), (fd, operation), LIST(int, int))
ON_FILE(fstat, (int fd, struct stat *about), (fd, about), LIST(int, struct stat *))
ON_FILE(fstat64, (int fd, struct stat64 *about), (fd, about), LIST(int, struct stat64 *))

#define LOCKS(name)                                                              \
  int name(int fd, int command, ...) {                                           \
    REAL(int, name, int, int, ...);                                              \
    va_list more;                                                                \
    va_start(more, command);                                                     \
    void *argument = va_arg(more, void *);                                       \
    va_end(more);                                                                \
    int locks = command == F_SETLK || command == F_SETLKW || command == F_GETLK; \
    if (locks && is_open_ours(fd) && fails("lock", 0, &half)) return -1;         \
    return real(fd, command, argument);                                          \
  }
LOCKS(fcntl)
LOCKS(fcntl64)

#define MOVES(name, parameters, arguments, types)                     \
  ssize_t name parameters {                                           \
    REAL(ssize_t, name, types);                                       \
    if (is_open_ours(fd) && fails(#name, size > 1, &half)) return -1; \
    if (half) size /= 2;                                              \
    return real arguments;                                            \
  }
MOVES(read, (int fd, void *bytes, size_t size), (fd, bytes, size), LIST(int, void *, size_t))
MOVES(write, (int fd, const void *bytes, size_t size), (fd, bytes, size), LIST(int, const void *, size_t))
MOVES(pread, (int fd, void *bytes, size_t size, off_t at), (fd, bytes, size, at), LIST(int, void *, size_t, off_t))
MOVES(pread64, (int fd, void *bytes, size_t size, off64_t at), (fd, bytes, size, at),
      LIST(int, void *, size_t, off64_t))
MOVES(pwrite, (int fd, const void *bytes, size_t size, off_t at), (fd, bytes, size, at),
      LIST(int, const void *, size_t, off_t))
MOVES(pwrite64, (int fd, const void *bytes, size_t size, off64_t at), (fd, bytes, size, at),
      LIST(int, const void *, size_t, off64_t))

/* Shared objects that are loaded from memory. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "ts_image.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

typedef struct image {
  struct image *next;
  void *library;
  size_t users;
  uint8_t digest[32];
} image;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static image *images;

#if defined(SYS_memfd_create) && defined(MFD_ALLOW_SEALING)
static int memory_with(const char *bytes, size_t size) {
  int memory = (int)syscall(SYS_memfd_create, "tilesmith", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  size_t done = 0;
  while (memory >= 0 && done < size) {
    ssize_t count = write(memory, bytes + done, size - done);
    if (count <= 0) return close(memory), -1;
    done += (size_t)count;
  }
  if (memory >= 0) fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
  return memory;
}

static void *load(const void *bytes, size_t size) {
  static uint32_t count; /* guarded by `turn` */
  int memory = memory_with(bytes, size);
  if (memory < 0) return NULL;
  /* NOTE: glibc takes two libraries of one path for one, and the number of a descriptor is used again. So each path
   * also spells how many there were before: for each bit "/." or "/", which lead nowhere else. */
  char path[128] = "/proc/self/fd";
  size_t at = strlen(path);
  for (uint32_t left = count++, bit = 0; bit < 32; bit++, left >>= 1) {
    path[at++] = '/';
    if (left & 1) path[at++] = '.';
  }
  snprintf(path + at, sizeof path - at, "/%d", memory);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  close(memory);
  return library;
}
#else
static void *load(const void *bytes, size_t size) {
  (void)bytes, (void)size;
  return NULL;
}
#endif

void *ts_image_open(const uint8_t *digest, const void *bytes, size_t size) {
  pthread_mutex_lock(&turn);
  image *found = images;
  while (found != NULL && memcmp(found->digest, digest, sizeof found->digest) != 0)
    found = found->next;
  if (found == NULL && (found = malloc(sizeof *found)) != NULL) {
    void *library = load(bytes, size);
    if (library == NULL) {
      free(found);
      found = NULL;
    } else {
      *found = (image){images, library, 0, {0}};
      memcpy(found->digest, digest, sizeof found->digest);
      images = found;
    }
  }
  if (found != NULL) found->users++;
  pthread_mutex_unlock(&turn);
  return found == NULL ? NULL : found->library;
}

void ts_image_close(void *library) {
  int last = 1;
  pthread_mutex_lock(&turn);
  for (image **at = &images; *at != NULL; at = &(*at)->next) {
    image *found = *at;
    if (found->library != library) continue;
    last = --found->users == 0;
    if (last) {
      *at = found->next;
      free(found);
    }
    break;
  }
  pthread_mutex_unlock(&turn);
  if (last) dlclose(library);
}

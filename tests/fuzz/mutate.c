/* A small stand-in for libFuzzer where there is no clang: gcc's sanitizers, coverage by gcc's
 * -fsanitize-coverage=trace-pc.
 *
 *     mutate SECONDS SEED FOLDER [FOUND]
 *
 * Every file of FOLDER is an input. Inputs are mutated for SECONDS (0: only replayed); one that reaches code that no
 * other has reached joins them, and is written into FOUND. The input that a sanitizer stops at is left in `crash`. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_INPUTS 8192
#define MOST_SIZE 4096
#define MAP (1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));
void __sanitizer_cov_trace_pc(void);

typedef struct input {
  uint8_t *bytes;
  size_t size;
} input;

static input inputs[MOST_INPUTS];
static size_t count;
static uint8_t reached[MAP], now[MAP];
static uint64_t state;
static const uint8_t *running;
static size_t running_size;

void __sanitizer_cov_trace_pc(void) {
  static _Thread_local uintptr_t before;
  uintptr_t here = (uintptr_t)__builtin_return_address(0);
  now[(here ^ before) % MAP] = 1;
  before = here >> 1;
}

static void died(void) {
  FILE *file = fopen("crash", "wb");
  if (file == NULL) return;
  fwrite(running, 1, running_size, file);
  fclose(file);
  fprintf(stderr, "the input is in ./crash, %zu bytes\n", running_size);
}

static uint32_t pick(size_t below) { /* xorshift */
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return below ? (uint32_t)((state >> 16) % below) : 0;
}

static int is_new(const uint8_t *bytes, size_t size) {
  memset(now, 0, sizeof now);
  running = bytes, running_size = size;
  LLVMFuzzerTestOneInput(bytes, size);
  int found = 0;
  for (size_t i = 0; i < MAP; i++)
    if (now[i] && !reached[i]) reached[i] = 1, found = 1;
  return found;
}

static void keep(const uint8_t *bytes, size_t size) {
  if (count == MOST_INPUTS) return;
  inputs[count].bytes = malloc(size ? size : 1);
  if (inputs[count].bytes == NULL) abort();
  memcpy(inputs[count].bytes, bytes, size);
  inputs[count++].size = size;
}

static void read_folder(const char *name) {
  DIR *folder = opendir(name);
  if (folder == NULL) exit(2);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char path[4096];
    static uint8_t bytes[MOST_SIZE];
    if (*entry->d_name == '.') continue;
    snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) exit(2);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    is_new(bytes, size);
    keep(bytes, size);
  }
  closedir(folder);
}

static size_t mutated(uint8_t *out) {
  static const uint64_t telling[] = {0,
                                     1,
                                     2,
                                     3,
                                     8,
                                     16,
                                     63,
                                     64,
                                     127,
                                     128,
                                     255,
                                     256,
                                     1023,
                                     1024,
                                     65535,
                                     INT32_MAX,
                                     UINT32_MAX,
                                     (uint64_t)1 << 32,
                                     (uint64_t)1 << 40,
                                     (uint64_t)1 << 62,
                                     INT64_MAX,
                                     (uint64_t)1 << 63,
                                     UINT64_MAX};
  const input *from = &inputs[pick(count)], *other = &inputs[pick(count)];
  size_t size = from->size;
  memcpy(out, from->bytes, size);
  for (uint32_t turn = 0, turns = 1 + pick(4); turn < turns; turn++) {
    size_t at = pick(size ? size : 1), length = 1 + pick(16);
    switch (pick(7)) {
    case 0:
      if (size) out[at] ^= (uint8_t)(1 << pick(8));
      break;
    case 1:
      if (size) out[at] = (uint8_t)pick(256);
      break;
    case 2: { /* a number, as wide as plans have them */
      uint64_t value = telling[pick(sizeof telling / sizeof *telling)];
      size_t width = pick(2) ? 4 : 8;
      if (size >= width) memcpy(out + pick(size - width + 1), &value, width);
      break;
    }
    case 3: /* cut out */
      if (at + length <= size) memmove(out + at, out + at + length, size - at - length), size -= length;
      break;
    case 4: /* put in */
      if (size + length <= MOST_SIZE) {
        memmove(out + at + length, out + at, size - at);
        for (size_t i = 0; i < length; i++)
          out[at + i] = other->size ? other->bytes[pick(other->size)] : 0;
        size += length;
      }
      break;
    case 5: /* a piece of another, at its place */
      if (other->size > at) {
        length = 1 + pick(other->size - at);
        if (at + length <= MOST_SIZE) {
          memcpy(out + at, other->bytes + at, length);
          if (at + length > size) size = at + length;
        }
      }
      break;
    default: { /* one more or less */
      if (size) out[at] = (uint8_t)(out[at] + (pick(2) ? 1 : 255));
      break;
    }
    }
  }
  return size;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const double seconds = atof(argv[1]);
  state = strtoull(argv[2], NULL, 10) * 2 + 0x9E3779B97F4A7C15;
  __sanitizer_set_death_callback(died);
  read_folder(argv[3]);
  const size_t begun_with = count;
  uint64_t runs = count;
  static uint8_t bytes[MOST_SIZE + 64];
  struct timespec start, later;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (double took = 0; took < seconds;) {
    for (int i = 0; i < 1000; i++, runs++) {
      size_t size = mutated(bytes);
      uint8_t *exact = malloc(size ? size : 1); /* so that a read beyond its end is seen */
      if (exact == NULL) return 2;
      memcpy(exact, bytes, size);
      if (is_new(exact, size)) {
        keep(exact, size);
        if (argc > 4) {
          char path[4096];
          snprintf(path, sizeof path, "%s/found-%zu", argv[4], count);
          FILE *file = fopen(path, "wb");
          if (file == NULL) return 2;
          fwrite(exact, 1, size, file);
          fclose(file);
        }
      }
      free(exact);
    }
    clock_gettime(CLOCK_MONOTONIC, &later);
    took = (double)(later.tv_sec - start.tv_sec) + 1e-9 * (double)(later.tv_nsec - start.tv_nsec);
  }
  size_t places = 0;
  for (size_t i = 0; i < MAP; i++)
    places += reached[i];
  printf("%zu inputs, %llu runs, %zu of them new, %zu edges\n", begun_with, (unsigned long long)runs,
         count - begun_with, places);
  return 0;
}

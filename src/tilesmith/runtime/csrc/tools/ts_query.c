/* ts-query: which targets this machine is, which packages of an index are for it, and whether a package is whole.
 *
 *     ts-query targets
 *     ts-query pick INDEX [--nearest] [--name NAME] [--target TARGET]...
 *     ts-query signer INDEX [KEYS]...
 *     ts-query check FILE [KEYS]...
 *
 * As Python's tools do, it caps the CPU's arch at TILESMITH_CPU_LEVEL, and TILESMITH_LIBCUDA names the driver.
 * `signer` and `check` take files of public keys: a signature that is wrong or of no trusted key is bad input.
 * Exit status: 0; 1 if there is no such package; 2 for bad input, with one line on stderr. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "ts_ed25519.h"
#include "ts_index.h"
#include "ts_keys.h"
#include "ts_machine.h"
#include "ts_package.h"
#include "ts_plan.h"
#include "ts_sha256.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_TARGETS 64
#define MOST_PACKAGE ((size_t)1 << 30)
#define MOST_KEYS ((size_t)1 << 16)

enum { OK, NONE_FOUND, BAD };

static int complain(const char *format, ...) {
  va_list values;
  va_start(values, format);
  fputs("ts-query: ", stderr);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  return BAD;
}

typedef struct targets {
  uint32_t count;
  ts_target list[MOST_TARGETS];
} targets;

static void add(targets *found, const ts_target *target) {
  for (uint32_t i = 0; i < found->count; i++)
    if (ts_target_fit(&found->list[i], target) == TS_FIT_EXACT) return;
  if (found->count < MOST_TARGETS) found->list[found->count++] = *target;
}

static int find_gpus(targets *found) {
  ts_error error;
  ts_target target;
  uint32_t count;
  const char *library = getenv("TILESMITH_LIBCUDA");
  ts_status status = ts_cuda_open(library, &error);
  if (status == TS_OK) status = ts_machine_gpus(&count, &error);
  if (status != TS_OK) { /* most machines have no GPU: no word, unless there is one */
    if ((library != NULL && *library) || access("/dev/nvidiactl", F_OK) == 0)
      complain("GPUs are left out: %s", error.text);
    return OK;
  }
  for (uint32_t i = 0; i < count; i++)
    if (ts_machine_gpu(i, &target, &error) == TS_OK)
      add(found, &target);
    else
      complain("GPU %" PRIu32 " is left out: %s", i, error.text);
  return OK;
}

static int find_machine(targets *found) {
  ts_error error;
  ts_target cpu;
  char level[64] = "";
  const char *given = getenv("TILESMITH_CPU_LEVEL");
  for (size_t i = 0; given != NULL && given[i] && i + 1 < sizeof level; i++)
    level[i] = (char)tolower((unsigned char)given[i]);
  if (ts_machine_cpu(0, level, &cpu, &error) == TS_BAD_ARGUMENT) return complain("TILESMITH_CPU_LEVEL: %s", error.text);
  if (cpu.cores > 0) add(found, &cpu);
  return find_gpus(found);
}

static int print_targets(void) {
  targets found = {0};
  char name[TS_TARGET_ROOM];
  if (find_machine(&found) != OK) return BAD;
  for (uint32_t i = 0; i < found.count; i++)
    puts(ts_target_name(&found.list[i], name));
  return found.count > 0 ? OK : complain("this machine is no target that Tilesmith runs on");
}

/* A whole file in memory of its own, with one byte more; NULL after a message. Never waits: a pipe is refused. */
static char *read_file(const char *path, size_t most, size_t *size) {
  struct stat facts;
  char *bytes = NULL;
  size_t done = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 || fstat(file, &facts) != 0) {
    complain("%s: %s", path, strerror(errno));
  } else if (!S_ISREG(facts.st_mode) || (uintmax_t)facts.st_size > most) {
    complain("%s is no file of %zu bytes at most", path, most);
  } else if ((bytes = malloc((size_t)facts.st_size + 1)) == NULL) {
    complain("%s: no memory for %jd bytes", path, (intmax_t)facts.st_size);
  } else {
    ssize_t count = 1;
    for (; done < (size_t)facts.st_size && count > 0; done += count > 0 ? (size_t)count : 0)
      count = read(file, bytes + done, (size_t)facts.st_size - done);
    if (done < (size_t)facts.st_size) {
      complain("%s cannot be read to its end", path);
      free(bytes);
      bytes = NULL;
    }
  }
  if (file >= 0) close(file);
  *size = done;
  return bytes;
}

/* Of the lines of `name` the one for `machine`: of the nearest target that fits at least as well as `least`, the
 * highest counter. NULL if there is none. */
static const ts_index_line *pick(const ts_index *index, const ts_target *machine, const char *name, ts_fit least) {
  const ts_index_line *best = NULL;
  ts_target best_target, target;
  for (const ts_index_line *line = index->lines; line < index->lines + index->count; line++) {
    if (strcmp(line->name, name) != 0 || ts_target_read(line->target, &target, NULL) != TS_OK) continue;
    if (ts_target_fit(machine, &target) < least) continue;
    const int order = best == NULL ? -1 : ts_target_compare(machine, &target, &best_target);
    if (order > 0 || (order == 0 && ts_index_compare_counters(line->counter, best->counter) < 0)) continue;
    best = line;
    best_target = target;
  }
  return best;
}

/* The lines for one target, of each name once; how many. */
static uint32_t print_picked(const ts_index *index, const ts_target *machine, const char *only, ts_fit least) {
  char own[TS_TARGET_ROOM];
  uint32_t taken = 0;
  for (uint32_t i = 0; i < index->count; i++) {
    const char *name = index->lines[i].name; /* lines are sorted by name */
    if ((i > 0 && strcmp(index->lines[i - 1].name, name) == 0) || (only != NULL && strcmp(only, name) != 0)) continue;
    const ts_index_line *line = pick(index, machine, name, TS_FIT_EXACT);
    const int is_exact = line != NULL;
    if (line == NULL && (line = pick(index, machine, name, least)) == NULL) continue;
    printf("%s %s %s %s %s %s %s %s\n", is_exact ? "exact" : "nearest", ts_target_name(machine, own), line->target,
           line->name, line->counter, line->digest, line->size, line->file);
    taken++;
  }
  return taken;
}

/* Say which package would be the nearest. */
static void tell_nearest(const ts_index *index, const ts_target *machine, const char *only) {
  char own[TS_TARGET_ROOM];
  const ts_index_line *best = NULL;
  ts_target target, best_target;
  ts_target_name(machine, own);
  for (uint32_t i = 0; i < index->count; i++) {
    const ts_index_line *line = pick(index, machine, index->lines[i].name, TS_FIT_NEAREST);
    if (line == NULL || (only != NULL && strcmp(only, line->name) != 0)) continue;
    ts_target_read(line->target, &target, NULL);
    if (best != NULL && ts_target_compare(machine, &target, &best_target) >= 0) continue;
    best = line;
    best_target = target;
  }
  if (best == NULL)
    complain("no package is for %s", own);
  else
    complain("no package is for %s; the nearest is for %s: %s (--nearest takes it)", own, best->target, best->file);
}

static int pick_packages(const char *path, const targets *machine, const char *only, ts_fit least) {
  static ts_index index;
  ts_error error;
  size_t size;
  uint32_t taken = 0;
  char *text = read_file(path, TS_INDEX_MOST_BYTES, &size);
  if (text == NULL) return BAD;
  if (ts_index_read(text, size, &index, &error) != TS_OK) {
    free(text);
    return complain("%s is no index of packages: %s", path, error.text);
  }
  for (uint32_t i = 0; i < machine->count; i++) {
    const uint32_t count = print_picked(&index, &machine->list[i], only, least);
    if (count == 0) tell_nearest(&index, &machine->list[i], only);
    taken += count;
  }
  free(text);
  return taken > 0 ? OK : NONE_FOUND;
}

static void put_hex(const uint8_t *bytes, size_t count, int is_there, char end) {
  if (!is_there) putchar('-');
  for (size_t i = 0; is_there && i < count; i++)
    printf("%02x", bytes[i]);
  putchar(end);
}

/* The name that one of the files gives to a trusted key. NULL after a message: it is revoked, or in none of them. */
static const char *find_key(const char *path, const uint8_t key[32], char *const *files, int count) {
  static char name[TS_KEYS_NAME];
  ts_key_standing best = TS_KEY_UNKNOWN;
  for (int i = 0; i < count && best != TS_KEY_REVOKED; i++) {
    char found[TS_KEYS_NAME];
    size_t size;
    char *text = read_file(files[i], MOST_KEYS, &size);
    if (text == NULL) return NULL;
    text[size] = 0;
    const ts_key_standing standing = ts_keys_find(text, key, found);
    if (standing > best) {
      best = standing;
      memcpy(name, found, sizeof name);
    }
    free(text);
  }
  if (best == TS_KEY_TRUSTED) return name;
  complain(best == TS_KEY_REVOKED ? "%s: it is signed by a key that is revoked: %s"
                                  : "%s: it is signed by a key that is not trusted",
           path, name);
  return NULL;
}

/* The name of the trusted key that signed a package; `-` for one without signature. NULL after a message. */
static const char *find_signer(const char *path, const ts_package *package, char *const *files, int count) {
  const ts_package_facts *facts = ts_package_get_facts(package);
  ts_error error;
  if (!facts->is_signed) return "-";
  if (ts_package_check_signature(package, NULL, &error) == TS_OK)
    return find_key(path, facts->public_key, files, count);
  complain("%s: %s", path, error.text);
  return NULL;
}

/* `digits` are hex digits, two for each byte. */
static void read_hex(const char *digits, uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const char pair[] = {digits[2 * i], digits[2 * i + 1], 0};
    bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
  }
}

/* Print the name of the trusted key that signed an index; `-` for one without signature. */
static int print_signer(const char *path, char *const *files, int count) {
  static const char first[] = "tilesmith package index 1\n";
  static ts_index index;
  uint8_t key[32], signature[64], message[sizeof first - 1 + TS_SHA256_BYTES] = {0};
  const char *name = NULL;
  ts_error error;
  size_t size;
  char *text = read_file(path, TS_INDEX_MOST_BYTES, &size);
  if (text == NULL) return BAD;
  text[size] = 0;
  const char *last = strstr(text, "\nend "); /* the signature is of all bytes up to the end of this line */
  const char *end = last != NULL ? strchr(last + 1, '\n') : NULL;
  memcpy(message, first, sizeof first - 1);
  if (end != NULL) ts_sha256((const uint8_t *)text, (size_t)(end + 1 - text), message + sizeof first - 1);
  if (ts_index_read(text, size, &index, &error) != TS_OK) {
    complain("%s is no index of packages: %s", path, error.text);
  } else if (index.signature == NULL) {
    name = "-";
  } else {
    read_hex(index.public_key, key, sizeof key);
    read_hex(index.signature, signature, sizeof signature);
    if (ts_ed25519_verify(key, signature, message, sizeof message))
      name = find_key(path, key, files, count);
    else
      complain("%s: its signature is wrong: it was changed, or signed by another key than it says", path);
  }
  free(text);
  if (name != NULL) puts(name);
  return name != NULL ? OK : BAD;
}

static void print_package(const uint8_t *bytes, size_t size, const ts_package_facts *facts, const char *signer) {
  uint8_t digest[TS_SHA256_BYTES];
  ts_sha256(bytes, size, digest);
  printf("%s %s %" PRIu64 " ", facts->target, facts->name, facts->counter);
  put_hex(digest, sizeof digest, 1, ' ');
  printf("%zu ", size);
  put_hex(facts->digest, sizeof facts->digest, 1, ' ');
  put_hex(facts->public_key, sizeof facts->public_key, facts->is_signed, ' ');
  put_hex(facts->signature, sizeof facts->signature, facts->is_signed, signer ? ' ' : '\n');
  if (signer) puts(signer);
}

static int check_package(const char *path, char *const *keys, int count) {
  ts_package *package = NULL;
  const char *signer = NULL;
  ts_error error;
  size_t size;
  char *bytes = read_file(path, MOST_PACKAGE, &size);
  if (bytes == NULL) return BAD;
  ts_status status = ts_package_open(bytes, size, &package, &error);
  if (status == TS_OK) status = ts_package_verify(package, &error);
  const int is_whole = status == TS_OK;
  if (!is_whole) complain("%s: %s", path, error.text);
  if (is_whole && count > 0 && (signer = find_signer(path, package, keys, count)) == NULL) status = TS_BAD_PACKAGE;
  if (status == TS_OK) print_package((const uint8_t *)bytes, size, ts_package_get_facts(package), signer);
  ts_package_close(package);
  free(bytes);
  return status == TS_OK ? OK : BAD;
}

static int parse_pick(int count, char **words) {
  targets machine = {0};
  const char *path = NULL, *only = NULL;
  ts_fit least = TS_FIT_EXACT;
  ts_error error;
  for (int i = 0; i < count; i++) {
    const int has_value = i + 1 < count;
    ts_target target;
    if (strcmp(words[i], "--nearest") == 0) {
      least = TS_FIT_NEAREST;
    } else if (strcmp(words[i], "--name") == 0 && has_value) {
      only = words[++i];
    } else if (strcmp(words[i], "--target") == 0 && has_value) {
      if (ts_target_read(words[++i], &target, &error) != TS_OK) return complain("%s", error.text);
      add(&machine, &target);
    } else if (words[i][0] == '-' || path != NULL) {
      return complain("'%s' is not expected; ts-query pick INDEX [--nearest] [--name NAME] [--target TARGET]...",
                      words[i]);
    } else {
      path = words[i];
    }
  }
  if (path == NULL) return complain("name the index: ts-query pick INDEX");
  if (machine.count == 0 && find_machine(&machine) != OK) return BAD;
  return pick_packages(path, &machine, only, least);
}

int main(int count, char **words) {
  int status;
  if (count == 1 || (count == 2 && strcmp(words[1], "targets") == 0))
    status = print_targets();
  else if (strcmp(words[1], "pick") == 0)
    status = parse_pick(count - 2, words + 2);
  else if (strcmp(words[1], "signer") == 0 && count >= 3)
    status = print_signer(words[2], words + 3, count - 3);
  else if (strcmp(words[1], "check") == 0 && count >= 3)
    status = check_package(words[2], words + 3, count - 3);
  else
    return complain(
        "'%s' is not expected; ts-query targets | pick INDEX | signer INDEX [KEYS]... | check FILE [KEYS]...",
        words[1]);
  if (fflush(stdout) != 0) return complain("the output cannot be written: %s", strerror(errno));
  return status;
}

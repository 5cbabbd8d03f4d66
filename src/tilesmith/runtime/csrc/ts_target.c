/* Targets by name, and how well one suits a machine: the rules of Python's targets/names.py. */
#include "ts_target.h"
#include "ts_machine.h"
#include "ts_plan.h"
#include "ts_target_tables.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MOST_SMS 1024

enum { OTHER_FAMILY = 400, OTHER_KIND = 300, ABOVE = 200, SAME_MAJOR = 100 };

static int cpu_index(const char *arch) {
  for (size_t i = 0; i < COUNT(cpu_archs); i++)
    if (strcmp(cpu_archs[i].arch, arch) == 0) return (int)i;
  return -1;
}

static int cuda_index(const char *arch) {
  for (size_t i = 0; i < COUNT(cuda_archs); i++)
    if (strcmp(cuda_archs[i].arch, arch) == 0) return (int)i;
  return -1;
}

static int card_index(const char *card) {
  for (size_t i = 0; i < COUNT(cards); i++)
    if (strcmp(cards[i].name, card) == 0) return (int)i;
  return -1;
}

static int common_card(int arch) {
  for (size_t i = 0; i < COUNT(cards); i++)
    if (strcmp(cards[i].arch, cuda_archs[arch].like) == 0) return (int)i;
  return -1;
}

const char *ts_cuda_arch(int major, int minor) {
  const char *arch = NULL;
  int best = -1;
  for (size_t i = 0; i < COUNT(cuda_archs); i++) {
    if (cuda_archs[i].major != major || cuda_archs[i].is_ptx) continue;
    if (cuda_archs[i].minor == minor) return cuda_archs[i].arch;
    if (cuda_archs[i].portable && cuda_archs[i].minor < minor && cuda_archs[i].minor > best) {
      arch = cuda_archs[i].arch;
      best = cuda_archs[i].minor;
    }
  }
  for (size_t i = 0; best < 0 && i < COUNT(cuda_archs); i++) {
    const int is_later = major > cuda_archs[i].major || (major == cuda_archs[i].major && minor > cuda_archs[i].minor);
    if (cuda_archs[i].is_ptx && is_later) arch = cuda_archs[i].arch; /* the last one is the newest */
  }
  return arch;
}

static int is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Lower-case words and digits joined by single hyphens. */
static int is_card(const char *card) {
  const size_t length = strlen(card);
  if (length == 0 || length > TS_CARD_LENGTH) return 0;
  for (size_t i = 0; i < length; i++)
    if (!is_word(card[i]) && (card[i] != '-' || i == 0 || i + 1 == length || card[i - 1] == '-')) return 0;
  return 1;
}

/* The cores between the colons: 1 to 9 digits; -1 for anything else. */
static int64_t read_cores(const char *text, size_t length) {
  int64_t value = 0;
  if (length == 0 || length > 9) return -1;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = 10 * value + (text[i] - '0');
  }
  return value;
}

static ts_status read_gpu(ts_target *target, int has_cores, const char *card, ts_error *error) {
  const int arch = cuda_index(target->arch), common = common_card(arch);
  snprintf(target->card, sizeof target->card, "%s", *card ? card : cards[common].name);
  const int known = card_index(target->card);
  if (!has_cores) target->cores = cards[known >= 0 ? known : common].cores;
  if (known >= 0 && strcmp(cards[known].arch, target->arch) != 0 && !cuda_archs[arch].is_ptx)
    return ts_fail(error, TS_BAD_ARGUMENT, "target card '%s' is a card of %s, not of %s", target->card,
                   cards[known].arch, target->arch);
  target->is_cuda = 1;
  return TS_OK;
}

ts_status ts_target_read(const char *name, ts_target *target, ts_error *error) {
  if (name == NULL || target == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "a target or its name is NULL");
  memset(target, 0, sizeof *target);
  const size_t arch_length = strcspn(name, ":");
  if (arch_length < sizeof target->arch) memcpy(target->arch, name, arch_length);
  const int is_cpu = cpu_index(target->arch) >= 0;
  if (!is_cpu && cuda_index(target->arch) < 0)
    return ts_fail(error, TS_BAD_ARGUMENT, "target arch '%.*s' does not exist",
                   (int)(arch_length < 48 ? arch_length : 48), name);
  const char *rest = name + arch_length, *card = "";
  const int has_cores = *rest == ':';
  int64_t cores = 1;
  if (has_cores) {
    const size_t digits = strcspn(rest + 1, ":");
    cores = read_cores(rest + 1, digits);
    card = rest + 1 + digits;
    const int64_t most = is_cpu ? TS_MAX_THREADS : MOST_SMS;
    if (cores < 1 || cores > most)
      return ts_fail(error, TS_BAD_ARGUMENT, "target '%.64s': its cores are no number from 1 to %d", name, (int)most);
    if (*card == ':' && !is_card(++card))
      return ts_fail(error, TS_BAD_ARGUMENT, "target '%.64s': its card is not lower-case words joined by hyphens",
                     name);
  }
  target->cores = (uint32_t)cores;
  if (!is_cpu) return read_gpu(target, has_cores, card, error);
  snprintf(target->card, sizeof target->card, "%s", *card ? card : TS_GENERIC);
  return TS_OK;
}

const char *ts_target_name(const ts_target *target, char name[TS_TARGET_ROOM]) {
  snprintf(name, TS_TARGET_ROOM, "%s:%u:%s", target->arch, target->cores, target->card);
  return name;
}

/* How far an arch is from the machine's: 0 for the same, below SAME_MAJOR for one that a CPU runs. */
static int arch_distance(const ts_target *machine, const ts_target *other) {
  if (machine->is_cuda != other->is_cuda) return OTHER_FAMILY;
  if (strcmp(machine->arch, other->arch) == 0) return 0;
  if (machine->is_cuda) {
    const int own = cuda_index(machine->arch), its = cuda_index(other->arch);
    return own >= 0 && its >= 0 && cuda_archs[own].major == cuda_archs[its].major ? SAME_MAJOR : OTHER_KIND;
  }
  const int own = cpu_index(machine->arch), its = cpu_index(other->arch);
  if (own < 0 || its < 0 || cpu_archs[own].instruction_set != cpu_archs[its].instruction_set) return OTHER_KIND;
  return its < own ? own - its : ABOVE + its - own;
}

ts_fit ts_target_fit(const ts_target *machine, const ts_target *other) {
  const int distance = arch_distance(machine, other);
  if (distance == 0 && machine->cores == other->cores && strcmp(machine->card, other->card) == 0) return TS_FIT_EXACT;
  if (distance >= SAME_MAJOR) return TS_FIT_NONE;
  return !machine->is_cuda && other->cores <= machine->cores ? TS_FIT_RUNS : TS_FIT_NEAREST;
}

/* Whether |log(a / machine)| is less (-1), the same or more than |log(b / machine)|. */
static int compare_cores(uint64_t machine, uint64_t a, uint64_t b) {
  const uint64_t a_high = a > machine ? a : machine, a_low = a > machine ? machine : a;
  const uint64_t b_high = b > machine ? b : machine, b_low = b > machine ? machine : b;
  const uint64_t left = a_high * b_low, right = b_high * a_low;
  return (left > right) - (left < right);
}

int ts_target_compare(const ts_target *machine, const ts_target *a, const ts_target *b) {
  char a_name[TS_TARGET_ROOM], b_name[TS_TARGET_ROOM];
  int order = arch_distance(machine, a) - arch_distance(machine, b);
  if (order == 0) order = compare_cores(machine->cores, a->cores, b->cores);
  if (order == 0) order = (strcmp(machine->card, a->card) != 0) - (strcmp(machine->card, b->card) != 0);
  return order != 0 ? order : strcmp(ts_target_name(a, a_name), ts_target_name(b, b_name));
}

/* Whether `a` comes before `b` in ts_target_rank. */
static int comes_first(const ts_target *machine, const char *a_name, const char *b_name) {
  ts_target a, b;
  ts_target_read(a_name, &a, NULL);
  ts_target_read(b_name, &b, NULL);
  const int fits = (int)ts_target_fit(machine, &a) - (int)ts_target_fit(machine, &b);
  return fits != 0 ? fits > 0 : ts_target_compare(machine, &a, &b) < 0;
}

uint32_t ts_target_rank(const ts_target *machine, const char *const *names, uint32_t count, ts_fit least,
                        uint32_t *order) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; i++) {
    ts_target other;
    if (ts_target_read(names[i], &other, NULL) != TS_OK || ts_target_fit(machine, &other) < least) continue;
    uint32_t at = found++;
    for (; at > 0 && comes_first(machine, names[i], names[order[at - 1]]); at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  return found;
}

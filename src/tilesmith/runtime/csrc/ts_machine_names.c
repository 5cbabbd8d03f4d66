/* Names for what a machine tells of itself: ts_machine_tables.h, read by the rules of Python's targets/. */
#include "ts_machine.h"
#include "ts_machine_tables.h"
#include "ts_target.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

const char *ts_x86_arch(uint32_t features) {
  const char *best = NULL;
  for (size_t i = 0; i < COUNT(x86_levels) && (features & x86_levels[i].adds) == x86_levels[i].adds; i++)
    best = x86_levels[i].arch;
  return best;
}

void ts_x86_card(const char *vendor, uint32_t family, uint32_t model, char card[TS_CARD_LENGTH + 1]) {
  const char *maker = "x86", *name = NULL;
  for (size_t i = 0; i < COUNT(makers); i++)
    if (strcmp(makers[i].vendor, vendor) == 0) maker = makers[i].maker;
  for (size_t i = 0; i < COUNT(amd) && name == NULL && strcmp(maker, "amd") == 0; i++)
    if (amd[i].family == family && amd[i].first <= model && model <= amd[i].last) name = amd[i].name;
  for (size_t i = 0; i < COUNT(intel) && name == NULL && strcmp(maker, "intel") == 0 && family == 6; i++)
    if (intel[i].model == model) name = intel[i].name;
  if (name != NULL)
    snprintf(card, TS_CARD_LENGTH + 1, "%s", name);
  else
    snprintf(card, TS_CARD_LENGTH + 1, "%s-%u-%u", maker, family, model);
}

void ts_arm_card(uint32_t implementer, uint32_t part, char card[TS_CARD_LENGTH + 1]) {
  snprintf(card, TS_CARD_LENGTH + 1, "arm-%x-%x", implementer, part);
  for (size_t i = 0; i < COUNT(arm); i++)
    if (arm[i].implementer == implementer && arm[i].part == part) snprintf(card, TS_CARD_LENGTH + 1, "%s", arm[i].name);
}

static int x86_level(const char *arch) {
  for (size_t i = 0; i < COUNT(x86_levels); i++)
    if (strcmp(x86_levels[i].arch, arch) == 0) return (int)i;
  return -1;
}

const char *ts_capped_arch(const char *arch, const char *highest) {
  if (highest == NULL || *highest == 0) return arch;
  const int cap = x86_level(highest);
  if (cap < 0) return NULL;
  return x86_level(arch) > cap ? highest : arch;
}

static int is_noise(const char *word, size_t length) {
  for (size_t i = 0; i < COUNT(noise); i++)
    if (strlen(noise[i]) == length && memcmp(noise[i], word, length) == 0) return 1;
  return 0;
}

void ts_gpu_card(const char *name, char card[TS_CARD_LENGTH + 1]) {
  char word[256];
  size_t length = 0, used = 0;
  for (size_t i = 0, ended = 0; !ended; i++) {
    const char c = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
    const int is_part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    ended = c == 0;
    if (is_part && used < sizeof word) word[used++] = c;
    if (is_part || used == 0) continue;
    if (!is_noise(word, used)) {
      if (length > 0 && length < TS_CARD_LENGTH) card[length++] = '-';
      for (size_t at = 0; at < used && length < TS_CARD_LENGTH; at++)
        card[length++] = word[at];
    }
    used = 0;
  }
  while (length > 0 && card[length - 1] == '-')
    length--;
  card[length] = 0;
  if (length == 0) snprintf(card, TS_CARD_LENGTH + 1, TS_GENERIC);
}

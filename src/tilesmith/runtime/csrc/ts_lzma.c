/* Expanding LZMA streams, as Igor Pavlov's specification (lzma-specification.txt of the LZMA SDK) has them. Refuses
 * what liblzma refuses. */
#include "ts_lzma.h"

#include <string.h>

#define LITERAL_CONTEXT 1  /* lc: high bits of the byte before that choose a literal's model */
#define LITERAL_POSITION 2 /* lp: low bits of the position that do */
#define POSITIONS 8        /* 2^pb: of a position's low bits, for all but literals */
#define STATES 12
#define BITS 11 /* of a probability */
#define HALF (1 << (BITS - 1))
#define SHIFT 5 /* how slowly probabilities change */
#define LEAST_RANGE (UINT32_C(1) << 24)
#define LEAST_LENGTH 2
#define SLOTS 64       /* of distances */
#define SHORT_SLOTS 14 /* those whose low bits have models of their own */
#define ALIGNED 4      /* low bits of other distances that have a model */
#define END UINT32_MAX /* the distance that ends a stream */

typedef uint16_t model; /* the probability of a 0 */

typedef struct lengths {
  model is_longer[2];
  model low[POSITIONS][8];
  model middle[POSITIONS][8];
  model high[256];
} lengths;

typedef struct models {
  model is_match[STATES][POSITIONS];
  model is_repeat[STATES];
  model is_older[3][STATES]; /* not the last distance; not the one before; not the third */
  model is_long[STATES][POSITIONS];
  model slot[4][SLOTS];
  model near[128 - SHORT_SLOTS + 1];
  model aligned[1 << ALIGNED];
  lengths match;
  lengths repeat;
  model literal[1 << (LITERAL_CONTEXT + LITERAL_POSITION)][0x300];
} models;

typedef struct coder {
  const uint8_t *at;
  const uint8_t *end;
  uint32_t range;
  uint32_t code;
  int is_bad; /* read beyond the end */
} coder;

static void normalise(coder *c) {
  if (c->range >= LEAST_RANGE) return;
  c->range <<= 8;
  c->code = c->code << 8 | (c->at < c->end ? *c->at : 0);
  if (c->at < c->end)
    c->at++;
  else
    c->is_bad = 1;
}

static uint32_t bit(coder *c, model *probability) {
  normalise(c);
  const uint32_t bound = (c->range >> BITS) * *probability;
  if (c->code < bound) {
    c->range = bound;
    *probability = (model)(*probability + (((1 << BITS) - *probability) >> SHIFT));
    return 0;
  }
  c->range -= bound;
  c->code -= bound;
  *probability = (model)(*probability - (*probability >> SHIFT));
  return 1;
}

/* `count` bits, the highest first. */
static uint32_t tree(coder *c, model *probabilities, int count) {
  uint32_t node = 1;
  for (int i = 0; i < count; i++)
    node = node << 1 | bit(c, probabilities + node);
  return node - (UINT32_C(1) << count);
}

/* The same, the lowest first. `probabilities` begins at node 1. */
static uint32_t low_first(coder *c, model *probabilities, int count) {
  uint32_t node = 1, value = 0;
  for (int i = 0; i < count; i++) {
    const uint32_t one = bit(c, probabilities + node - 1);
    node = node << 1 | one;
    value |= one << i;
  }
  return value;
}

static uint32_t even_bits(coder *c, int count) {
  uint32_t value = 0;
  while (count-- > 0) {
    normalise(c);
    c->range >>= 1;
    const uint32_t one = c->code >= c->range;
    if (one) c->code -= c->range;
    value = value << 1 | one;
  }
  return value;
}

static uint32_t length_of(coder *c, lengths *l, size_t position) {
  if (!bit(c, &l->is_longer[0])) return LEAST_LENGTH + tree(c, l->low[position], 3);
  if (!bit(c, &l->is_longer[1])) return LEAST_LENGTH + 8 + tree(c, l->middle[position], 3);
  return LEAST_LENGTH + 16 + tree(c, l->high, 8);
}

/* The distance to a match, less 1. */
static uint32_t distance_of(coder *c, models *m, uint32_t length) {
  const uint32_t by_length = length - LEAST_LENGTH;
  const uint32_t slot = tree(c, m->slot[by_length < 3 ? by_length : 3], 6);
  if (slot < 4) return slot;
  const int low = (int)(slot >> 1) - 1;
  const uint32_t base = (2 | (slot & 1)) << low;
  if (slot < SHORT_SLOTS) return base + low_first(c, m->near + base - slot, low);
  const uint32_t middle = even_bits(c, low - ALIGNED) << ALIGNED;
  return base + middle + low_first(c, m->aligned, ALIGNED);
}

/* The next byte. After a match it is likely to differ from the one that the match would have gone on with. */
static uint8_t literal_of(coder *c, model *probabilities, int follows_match, uint32_t expected) {
  uint32_t node = 1;
  while (follows_match && node < 0x100) {
    const uint32_t wanted = expected >> 7 & 1, one = bit(c, probabilities + ((1 + wanted) << 8) + node);
    expected <<= 1;
    node = node << 1 | one;
    if (one != wanted) break;
  }
  while (node < 0x100)
    node = node << 1 | bit(c, probabilities + node);
  return (uint8_t)node;
}

int ts_unlzma(const void *from, size_t from_size, void *to_start, size_t to_size) {
  models m;
  model *all = (model *)&m;
  for (size_t i = 0; i < sizeof m / sizeof *all; i++)
    all[i] = HALF;
  coder c = {from, (const uint8_t *)from + from_size, 0, 0, 0};
  uint8_t *const to = to_start;
  size_t made = 0;
  uint32_t distances[4] = {0, 0, 0, 0}, state = 0; /* the last distances, less 1 */
  if (from_size < 5 || *c.at) return 0;
  for (int i = 0; i < 5; i++) /* the first byte is 0 */
    c.code = c.code << 8 | *c.at++;
  c.range = UINT32_MAX;
  while (!c.is_bad) {
    const size_t position = made % POSITIONS;
    uint32_t length = 1;
    if (!bit(&c, &m.is_match[state][position])) {
      if (made == to_size) return 0;
      const uint32_t before = made ? to[made - 1] : 0;
      const size_t place = (made & ((1 << LITERAL_POSITION) - 1)) << LITERAL_CONTEXT;
      const int follows = state >= 7;
      const uint32_t expected = follows ? to[made - distances[0] - 1] : 0; /* a match lies within what is made */
      to[made++] = literal_of(&c, m.literal[place + (before >> (8 - LITERAL_CONTEXT))], follows, expected);
      state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
      continue;
    }
    if (!bit(&c, &m.is_repeat[state])) {
      length = length_of(&c, &m.match, position);
      memmove(distances + 1, distances, 3 * sizeof *distances);
      distances[0] = distance_of(&c, &m, length);
      if (distances[0] == END) break;
      state = state < 7 ? 7 : 10;
    } else {
      uint32_t age = bit(&c, &m.is_older[0][state]);
      if (age && bit(&c, &m.is_older[1][state])) age = 2 + bit(&c, &m.is_older[2][state]);
      if (age || bit(&c, &m.is_long[state][position])) {
        const uint32_t distance = distances[age];
        memmove(distances + 1, distances, age * sizeof *distances);
        distances[0] = distance;
        length = length_of(&c, &m.repeat, position);
        state = state < 7 ? 8 : 11;
      } else {
        state = state < 7 ? 9 : 11;
      }
    }
    if (distances[0] >= made || length > to_size - made) return 0;
    for (size_t i = 0; i < length; i++, made++) /* it may repeat what it has just written */
      to[made] = to[made - distances[0] - 1];
  }
  normalise(&c);
  return !c.is_bad && made == to_size && c.code == 0 && c.at == c.end;
}

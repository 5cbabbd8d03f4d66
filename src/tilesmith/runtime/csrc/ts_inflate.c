/* Inflating (RFC 1951). Refuses what zlib refuses. */
#include "ts_inflate.h"

#include <string.h>

#define LONGEST 15 /* bits of a code */
#define FAST 10    /* bits of a code that one table look-up decodes */
#define LITERALS 288
#define DISTANCES 32
#define END_OF_BLOCK 256

/* A canonical Huffman code. `fast` has symbol << 4 | bits for what its index begins with, 0 for a longer code. */
typedef struct code {
  uint16_t fast[1 << FAST];
  uint16_t count[LONGEST + 1]; /* codes of each length */
  uint16_t symbols[LITERALS];  /* in the order of their codes */
} code;

typedef struct stream {
  const uint8_t *at;
  const uint8_t *end;
  uint64_t bits; /* not yet used, the next one lowest */
  int have;
  uint8_t *to;
  size_t made;
  size_t most;
} stream;

static void refill(stream *s) {
  while (s->have <= 56 && s->at < s->end) {
    s->bits |= (uint64_t)*s->at++ << s->have;
    s->have += 8;
  }
}

/* The next `count` bits, at most 16; -1 at the end. */
static int take(stream *s, int count) {
  if (s->have < count) refill(s);
  if (s->have < count) return -1;
  const int value = (int)(s->bits & ((UINT64_C(1) << count) - 1));
  s->bits >>= count;
  s->have -= count;
  return value;
}

/* 0 for lengths that are no code: more codes than bits allow, or fewer unless there is at most one of a single bit. */
static int make_code(code *c, const uint8_t *lengths, int symbols) {
  uint16_t next[LONGEST + 2] = {0}, place[LONGEST + 2] = {0};
  memset(c, 0, sizeof *c);
  for (int i = 0; i < symbols; i++)
    c->count[lengths[i]]++;
  c->count[0] = 0;
  int left = 1, longest = 0;
  for (int bits = 1; bits <= LONGEST; bits++) {
    left = (left << 1) - c->count[bits];
    if (left < 0) return 0;
    if (c->count[bits]) longest = bits;
    next[bits + 1] = (uint16_t)((next[bits] + c->count[bits]) << 1);
    place[bits + 1] = (uint16_t)(place[bits] + c->count[bits]);
  }
  if (left > 0 && longest > 1) return 0;
  for (int i = 0; i < symbols; i++) {
    const int bits = lengths[i];
    if (bits == 0) continue;
    c->symbols[place[bits]++] = (uint16_t)i;
    uint32_t value = next[bits]++, turned = 0;
    if (bits > FAST) continue;
    for (int bit = 0; bit < bits; bit++)
      turned |= (value >> bit & 1) << (bits - 1 - bit);
    for (; turned < 1 << FAST; turned += UINT32_C(1) << bits)
      c->fast[turned] = (uint16_t)(i << 4 | bits);
  }
  return 1;
}

/* The next symbol; -1 for bits that are no code, and at the end. */
static int decode(stream *s, const code *c) {
  if (s->have < LONGEST) refill(s);
  const int found = c->fast[s->bits & ((1 << FAST) - 1)];
  if (found && (found & 15) <= s->have) {
    s->bits >>= found & 15;
    s->have -= found & 15;
    return found >> 4;
  }
  int value = 0, first = 0, place = 0;
  for (int bits = 1; bits <= LONGEST && bits <= s->have; bits++) {
    value |= (int)(s->bits >> (bits - 1) & 1);
    const int count = c->count[bits];
    if (value - first < count) {
      s->bits >>= bits;
      s->have -= bits;
      return c->symbols[place + value - first];
    }
    place += count;
    first = (first + count) << 1;
    value <<= 1;
  }
  return -1;
}

/* Section 3.2.5. */
static const uint16_t length_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                         31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_bits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                        2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t distance_base[30] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                           33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                           1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const uint8_t distance_bits[30] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                          6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

static int copy_match(stream *s, int symbol, const code *distances) {
  if (symbol >= 29) return 0;
  const int more = take(s, length_bits[symbol]), far = decode(s, distances);
  if (more < 0 || far < 0 || far >= 30) return 0;
  const int beyond = take(s, distance_bits[far]);
  if (beyond < 0) return 0;
  const size_t length = (size_t)(length_base[symbol] + more), distance = (size_t)(distance_base[far] + beyond);
  if (distance > s->made || length > s->most - s->made) return 0;
  uint8_t *to = s->to + s->made;
  s->made += length;
  if (distance >= length)
    memcpy(to, to - distance, length);
  else
    for (size_t i = 0; i < length; i++) /* it repeats what it has just written */
      to[i] = to[(ptrdiff_t)i - (ptrdiff_t)distance];
  return 1;
}

static int coded_block(stream *s, const code *literals, const code *distances) {
  for (;;) {
    const int symbol = decode(s, literals);
    if (symbol < 0) return 0;
    if (symbol == END_OF_BLOCK) return 1;
    if (symbol > END_OF_BLOCK) {
      if (!copy_match(s, symbol - END_OF_BLOCK - 1, distances)) return 0;
    } else {
      if (s->made == s->most) return 0;
      s->to[s->made++] = (uint8_t)symbol;
    }
  }
}

static int stored_block(stream *s) {
  take(s, s->have % 8); /* to the next byte */
  const int length = take(s, 16), check = take(s, 16);
  if (length < 0 || check < 0 || (length ^ check) != 0xFFFF) return 0;
  s->at -= s->have / 8; /* give back what was read ahead */
  s->bits = 0;
  s->have = 0;
  if ((size_t)length > (size_t)(s->end - s->at) || (size_t)length > s->most - s->made) return 0;
  if (length) memcpy(s->to + s->made, s->at, (size_t)length);
  s->at += length;
  s->made += (size_t)length;
  return 1;
}

/* Section 3.2.6. The codes are made once for a row of such blocks: an empty one has 10 bits, and codes take far longer
 * than to read them. */
static int fixed_block(stream *s, code *literals, code *distances, int *are_fixed) {
  uint8_t lengths[LITERALS];
  if (!*are_fixed) {
    for (int i = 0; i < LITERALS; i++)
      lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    make_code(literals, lengths, LITERALS);
    memset(lengths, 5, DISTANCES);
    make_code(distances, lengths, DISTANCES);
    *are_fixed = 1;
  }
  return coded_block(s, literals, distances);
}

/* Section 3.2.7. */
static int dynamic_block(stream *s, code *literals, code *distances) {
  static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  uint8_t lengths[LITERALS + DISTANCES] = {0};
  const int literal_count = take(s, 5) + 257, distance_count = take(s, 5) + 1, order_count = take(s, 4) + 4;
  if (order_count < 4 || literal_count > 286 || distance_count > 30) return 0; /* at the end take() gave -1 */
  for (int i = 0; i < order_count; i++) {
    const int bits = take(s, 3);
    if (bits < 0) return 0;
    lengths[order[i]] = (uint8_t)bits;
  }
  if (!make_code(literals, lengths, 19)) return 0;
  memset(lengths, 0, 19);
  for (int done = 0; done < literal_count + distance_count;) {
    const int symbol = decode(s, literals);
    if (symbol < 0) return 0;
    if (symbol < 16) {
      lengths[done++] = (uint8_t)symbol;
      continue;
    }
    if (symbol == 16 && done == 0) return 0; /* nothing to repeat */
    const uint8_t again = symbol == 16 ? lengths[done - 1] : 0;
    const int more = take(s, symbol == 16 ? 2 : symbol == 17 ? 3 : 7), count = more + (symbol == 18 ? 11 : 3);
    if (more < 0 || count > literal_count + distance_count - done) return 0;
    memset(lengths + done, again, (size_t)count);
    done += count;
  }
  if (lengths[END_OF_BLOCK] == 0) return 0;
  return make_code(literals, lengths, literal_count) && make_code(distances, lengths + literal_count, distance_count) &&
         coded_block(s, literals, distances);
}

int ts_inflate(const void *from, size_t from_size, void *to, size_t to_size) {
  stream s = {from, (const uint8_t *)from + from_size, 0, 0, to, 0, to_size};
  code literals, distances;
  int are_fixed = 0; /* the codes: those of fixed blocks */
  for (int is_last = 0; !is_last;) {
    is_last = take(&s, 1);
    const int kind = take(&s, 2);
    if (is_last < 0 || kind < 0 || kind == 3) return 0;
    if (kind == 2) are_fixed = 0;
    const int done = kind == 0   ? stored_block(&s)
                     : kind == 1 ? fixed_block(&s, &literals, &distances, &are_fixed)
                                 : dynamic_block(&s, &literals, &distances);
    if (!done) return 0;
  }
  return s.made == s.most && s.at == s.end && s.have < 8;
}

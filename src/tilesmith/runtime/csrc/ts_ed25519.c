/* Verifying signatures: ed25519 (RFC 8032). Numbers below p = 2^255 - 19 have 16 limbs of 16 bits, as in TweetNaCl
 * (Bernstein et al., 2014): little code, the same on every processor, and fast enough for one signature a package. */
#include "ts_ed25519.h"

#include "ts_sha512.h"

#include <string.h>

#define LIMBS 16

/* Limbs of a product are from 0 to 2^16 or little more; those of sums and differences of a few products fit a factor.
 */
typedef struct number {
  int64_t limb[LIMBS];
} number;

/* A point of -x^2 + y^2 = 1 + d x^2 y^2: x = X / Z, y = Y / Z, x y = T / Z (RFC 8032, section 5.1.4). */
typedef struct point {
  number x;
  number y;
  number z;
  number t;
} point;

static const number ONE = {{1}};
/* d = -121665 / 121666, 2 d, a square root of -1, and the base point (section 5.1). */
static const number D = {{0x78a3, 0x1359, 0x4dca, 0x75eb, 0xd8ab, 0x4141, 0x0a4d, 0x0070, 0xe898, 0x7779, 0x4079,
                          0x8cc7, 0xfe73, 0x2b6f, 0x6cee, 0x5203}};
static const number D2 = {{0xf159, 0x26b2, 0x9b94, 0xebd6, 0xb156, 0x8283, 0x149a, 0x00e0, 0xd130, 0xeef3, 0x80f2,
                           0x198e, 0xfce7, 0x56df, 0xd9dc, 0x2406}};
static const number ROOT = {{0xa0b0, 0x4a0e, 0x1b27, 0xc4ee, 0xe478, 0xad2f, 0x1806, 0x2f43, 0xd7a7, 0x3dfb, 0x0099,
                             0x2b4d, 0xdf0b, 0x4fc1, 0x2480, 0x2b83}};
static const point BASE = {{{0xd51a, 0x8f25, 0x2d60, 0xc956, 0xa7b2, 0x9525, 0xc760, 0x692c, 0xdc5c, 0xfdd6, 0xe231,
                             0xc0a4, 0x53fe, 0xcd6e, 0x36d3, 0x2169}},
                           {{0x6658, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666,
                             0x6666, 0x6666, 0x6666, 0x6666, 0x6666}},
                           {{1}},
                           {{0xdda3, 0xa5b7, 0x8ab3, 0x6dde, 0x52f5, 0x7751, 0x9f80, 0x20f0, 0xe37d, 0x64ab, 0x4e8e,
                             0x66ea, 0x7665, 0xd78b, 0x5f0f, 0x6787}}};
/* The order of the base point, 2^252 + 27742317777372353535851937790883648493, the lowest byte first. */
static const uint8_t ORDER[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                  0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                  0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};

static number plus(number a, number b) {
  for (int i = 0; i < LIMBS; i++)
    a.limb[i] += b.limb[i];
  return a;
}

static number minus(number a, number b) {
  for (int i = 0; i < LIMBS; i++)
    a.limb[i] -= b.limb[i];
  return a;
}

/* Limbs from 0 to 2^16 - 1, but for what the last one gives to the first: 2^256 is 38. */
static void carry(int64_t limb[LIMBS]) {
  for (int i = 0; i < LIMBS; i++) {
    const int64_t over = limb[i] >> 16; /* rounded down; every compiler of this code shifts the sign in */
    limb[i] -= over * 65536;
    if (i < LIMBS - 1)
      limb[i + 1] += over;
    else
      limb[0] += 38 * over;
  }
}

static number times(number a, number b) {
  int64_t wide[2 * LIMBS] = {0};
  number c;
  for (int i = 0; i < LIMBS; i++)
    for (int k = 0; k < LIMBS; k++)
      wide[i + k] += a.limb[i] * b.limb[k];
  for (int i = 0; i < LIMBS; i++)
    c.limb[i] = wide[i] + 38 * wide[i + LIMBS];
  carry(c.limb);
  carry(c.limb);
  return c;
}

/* a^e, where e has `bits` bits: ones, but for two of them. */
static number power(number a, int bits, int zero, int other_zero) {
  number result = ONE;
  for (int bit = bits - 1; bit >= 0; bit--) {
    result = times(result, result);
    if (bit != zero && bit != other_zero) result = times(result, a);
  }
  return result;
}

/* The 32 bytes of the one number from 0 to p - 1, the lowest first. */
static void pack(number a, uint8_t bytes[32]) {
  for (int i = 0; i < 3; i++)
    carry(a.limb);
  for (int turn = 0; turn < 2; turn++) { /* it is below 2^256 = 2 p + 38 */
    number less = a;
    int64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
      less.limb[i] = a.limb[i] - (i == 0 ? 0xffed : i == LIMBS - 1 ? 0x7fff : 0xffff) - borrow;
      borrow = less.limb[i] < 0;
      less.limb[i] += borrow * 65536;
    }
    if (!borrow) a = less;
  }
  for (int i = 0; i < LIMBS; i++) {
    bytes[2 * i] = (uint8_t)a.limb[i];
    bytes[2 * i + 1] = (uint8_t)(a.limb[i] >> 8);
  }
}

static number unpack(const uint8_t bytes[32]) {
  number a;
  for (int i = 0; i < LIMBS; i++)
    a.limb[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
  a.limb[LIMBS - 1] &= 0x7fff;
  return a;
}

static int is_same(number a, number b) {
  uint8_t one[32], other[32];
  pack(a, one);
  pack(b, other);
  return memcmp(one, other, sizeof one) == 0;
}

static int is_odd(number a) {
  uint8_t bytes[32];
  pack(a, bytes);
  return bytes[0] & 1;
}

/* The sum of any two points, the same point too (Hisil, Wong, Carter and Dawson, 2008, section 3.1). */
static point sum(point p, point q) {
  const number a = times(minus(p.y, p.x), minus(q.y, q.x)), b = times(plus(p.y, p.x), plus(q.y, q.x));
  const number c = times(times(p.t, q.t), D2), zz = times(p.z, q.z), d = plus(zz, zz);
  const number e = minus(b, a), f = minus(d, c), g = plus(d, c), h = plus(b, a);
  return (point){times(e, f), times(h, g), times(g, f), times(e, h)};
}

/* The point of 32 bytes: y, and in the last bit whether x is odd. 0 for bytes that are none, or not its one spelling.
 */
static int read_point(const uint8_t bytes[32], point *p) {
  uint8_t again[32];
  const int wants_odd = bytes[31] >> 7;
  const number y = unpack(bytes), yy = times(y, y), u = minus(yy, ONE), v = plus(times(yy, D), ONE);
  pack(y, again);
  again[31] |= (uint8_t)(wants_odd << 7);
  if (memcmp(again, bytes, sizeof again) != 0) return 0;
  /* x = sqrt(u / v) = u v^3 (u v^7)^((p - 5) / 8), or that times a root of -1; (p - 5) / 8 = 2^252 - 3. */
  const number v3 = times(times(v, v), v), v7 = times(times(v3, v3), v);
  number x = times(times(u, v3), power(times(u, v7), 252, 1, 1));
  if (!is_same(times(v, times(x, x)), u)) x = times(x, ROOT);
  if (!is_same(times(v, times(x, x)), u)) return 0;
  const number zero = {{0}};
  if (is_same(x, zero) && wants_odd) return 0;
  if (is_odd(x) != wants_odd) x = minus(zero, x);
  *p = (point){x, y, ONE, times(x, y)};
  return 1;
}

static void write_point(point p, uint8_t bytes[32]) {
  const number inverse = power(p.z, 255, 2, 4); /* p - 2 = 2^255 - 21 */
  pack(times(p.y, inverse), bytes);
  bytes[31] |= (uint8_t)(is_odd(times(p.x, inverse)) << 7);
}

/* a -= ORDER if that is not below 0; returns whether it was. */
static int reduce(uint8_t a[32]) {
  uint8_t less[32];
  int borrow = 0;
  for (int i = 0; i < 32; i++) {
    const int digit = a[i] - ORDER[i] - borrow;
    borrow = digit < 0;
    less[i] = (uint8_t)digit;
  }
  if (!borrow) memcpy(a, less, sizeof less);
  return !borrow;
}

/* The remainder of 64 bytes by the order. */
static void remainder_of(const uint8_t wide[64], uint8_t result[32]) {
  memset(result, 0, 32);
  for (int bit = 511; bit >= 0; bit--) {
    int over = wide[bit / 8] >> bit % 8 & 1;
    for (int i = 0; i < 32; i++) { /* it stays below 2^254 */
      const int doubled = result[i] << 1 | over;
      result[i] = (uint8_t)doubled;
      over = doubled >> 8;
    }
    reduce(result);
  }
}

static int read_key(const uint8_t key[32], point *p) {
  if (!read_point(key, p)) return 0;
  point eight = sum(*p, *p);
  eight = sum(eight, eight);
  eight = sum(eight, eight);
  const number zero = {{0}};
  return !(is_same(eight.x, zero) && is_same(eight.y, eight.z));
}

int ts_ed25519_is_key(const uint8_t key[32]) {
  point p;
  return read_key(key, &p);
}

int ts_ed25519_verify(const uint8_t key[32], const uint8_t signature[64], const void *message, size_t size) {
  const number zero = {{0}};
  point a, r = {zero, ONE, ONE, zero};
  uint8_t s[32], h[32], wide[64], found[32];
  memcpy(s, signature + 32, sizeof s);
  if (reduce(s) || !read_key(key, &a)) return 0;
  const ts_sha512_part parts[] = {{signature, 32}, {key, 32}, {message, size}};
  ts_sha512(parts, 3, wide);
  remainder_of(wide, h);
  a.x = minus(zero, a.x);
  a.t = minus(zero, a.t);
  for (int bit = 255; bit >= 0; bit--) { /* r = s BASE - h a */
    r = sum(r, r);
    if (s[bit / 8] >> bit % 8 & 1) r = sum(r, BASE);
    if (h[bit / 8] >> bit % 8 & 1) r = sum(r, a);
  }
  write_point(r, found);
  return memcmp(found, signature, sizeof found) == 0;
}

/* Text of a double: the shortest that reads back as the same number, and of those the nearest (Steele and White, 1990).
 * The C library's printf has no such form, and follows the locale. */
#include "ts_check.h"

#include <string.h>

#define LIMBS 40 /* 1280 bits: the largest numbers here are below 2^1140 */

typedef struct big {
  int size; /* limbs in use, none of them 0 at the end */
  uint32_t limb[LIMBS];
} big;

static void multiply(big *a, uint32_t factor) {
  uint64_t carry = 0;
  for (int i = 0; i < a->size; i++) {
    carry += (uint64_t)a->limb[i] * factor;
    a->limb[i] = (uint32_t)carry;
    carry >>= 32;
  }
  if (carry) a->limb[a->size++] = (uint32_t)carry;
}

static big shifted(uint64_t value, int bits) {
  big a = {0, {0}};
  for (; value; value >>= 32)
    a.limb[a.size++] = (uint32_t)value;
  for (; bits >= 31; bits -= 31)
    multiply(&a, UINT32_C(1) << 31);
  multiply(&a, UINT32_C(1) << bits);
  return a;
}

static void multiply_by_tens(big *a, int power) {
  for (; power >= 9; power -= 9)
    multiply(a, 1000000000);
  for (; power > 0; power--)
    multiply(a, 10);
}

static int compare(const big *a, const big *b) {
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  for (int i = a->size - 1; i >= 0; i--)
    if (a->limb[i] != b->limb[i]) return a->limb[i] < b->limb[i] ? -1 : 1;
  return 0;
}

static big sum(const big *a, const big *b) {
  big c = {0, {0}};
  uint64_t carry = 0;
  const int most = a->size > b->size ? a->size : b->size;
  for (int i = 0; i < most || carry; i++, carry >>= 32) {
    carry += (uint64_t)(i < a->size ? a->limb[i] : 0) + (i < b->size ? b->limb[i] : 0);
    c.limb[c.size++] = (uint32_t)carry;
  }
  return c;
}

/* a -= b, for a >= b. */
static void subtract(big *a, const big *b) {
  uint64_t borrow = 0;
  for (int i = 0; i < a->size; i++) {
    const uint64_t less = (uint64_t)(i < b->size ? b->limb[i] : 0) + borrow;
    borrow = a->limb[i] < less;
    a->limb[i] -= (uint32_t)less;
  }
  while (a->size && a->limb[a->size - 1] == 0)
    a->size--;
}

/* The digits of a positive number; returns their count. The number is 0.d1d2d3... * 10^point. */
static int digits_of(double value, char digits[20], int *point) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  const int stored = (int)(bits >> 52 & 2047);
  uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
  /* Below a power of two, numbers lie half as far apart as above it. */
  const int uneven = fraction == 0 && stored > 1;
  if (stored) fraction |= UINT64_C(1) << 52;
  const int exponent = (stored ? stored : 1) - 1075; /* value = fraction * 2^exponent */
  const int is_even = !(fraction & 1);               /* a number halfway to the next one is read as the even of both */
  /* value = rest / unit; all between value - below / unit and value + above / unit reads back as value. */
  const int up = exponent > 0 ? exponent : 0, down = exponent < 0 ? -exponent : 0;
  big rest = shifted(fraction, up + 1 + uneven), unit = shifted(1, down + 1 + uneven);
  big above = shifted(1, up + uneven), below = shifted(1, up);
  int length = 0;
  for (uint64_t left = fraction; left; left >>= 1)
    length++;
  const int scaled = (exponent + length - 1) * 30103; /* by 100000 log10(2) */
  int power = scaled / 100000 + (scaled > 0);         /* the right one, or one less */
  if (power > 0) multiply_by_tens(&unit, power);
  multiply_by_tens(&rest, -power);
  multiply_by_tens(&above, -power);
  multiply_by_tens(&below, -power);
  big reach = sum(&rest, &above);
  if (compare(&reach, &unit) > -is_even)
    power++;
  else {
    multiply(&rest, 10);
    multiply(&above, 10);
    multiply(&below, 10);
  }
  *point = power;
  for (int count = 0;;) {
    int digit = 0;
    for (; compare(&rest, &unit) >= 0; digit++)
      subtract(&rest, &unit);
    const int at_low = compare(&rest, &below) < is_even;
    reach = sum(&rest, &above);
    const int at_high = compare(&reach, &unit) > -is_even;
    if (at_low || at_high) {
      const big twice = sum(&rest, &rest);
      const int half = compare(&twice, &unit);
      const int is_nearer = half > 0 || (half == 0 && digit & 1);
      digits[count++] = (char)('0' + digit + (at_high && (!at_low || is_nearer)));
      return count;
    }
    digits[count++] = (char)('0' + digit);
    multiply(&rest, 10);
    multiply(&above, 10);
    multiply(&below, 10);
  }
}

static char *put(char *at, const char *text, int count) {
  memcpy(at, text, (size_t)count);
  return at + count;
}

static char *put_zeros(char *at, int count) {
  for (; count > 0; count--)
    *at++ = '0';
  return at;
}

char *ts_real_text(double value, char out[TS_REAL_ROOM]) {
  char *at = out, digits[20];
  if (value != value) return strcpy(out, "nan");
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (bits >> 63) *at++ = '-', value = -value;
  if (value > 1.7976931348623157e308) return strcpy(at, "inf"), out;
  if (value == 0) return strcpy(at, "0.0"), out;
  int point;
  const int count = digits_of(value, digits, &point);
  if (-4 < point && point <= 16) {
    if (point <= 0) {
      at = put_zeros(put(at, "0.", 2), -point);
      at = put(at, digits, count);
    } else if (point >= count) {
      at = put_zeros(put(at, digits, count), point - count);
      at = put(at, ".0", 2);
    } else {
      at = put(put(at, digits, point), ".", 1);
      at = put(at, digits + point, count - point);
    }
  } else {
    int exponent = point - 1;
    at = put(at, digits, 1);
    if (count > 1) at = put(put(at, ".", 1), digits + 1, count - 1);
    *at++ = 'e';
    *at++ = exponent < 0 ? '-' : '+';
    if (exponent < 0) exponent = -exponent;
    if (exponent >= 100) *at++ = (char)('0' + exponent / 100);
    *at++ = (char)('0' + exponent / 10 % 10);
    *at++ = (char)('0' + exponent % 10);
  }
  *at = 0;
  return out;
}

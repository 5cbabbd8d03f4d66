/* SHA-256 (FIPS 180-4, section 6.2). */
#include "ts_sha256.h"

#include <string.h>

#define BLOCK 64

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (section 4.2.2). */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) {
  return x >> n | x << (32 - n);
}

static void digest_blocks(uint32_t h[8], const uint8_t *at, size_t blocks) {
  for (; blocks; blocks--, at += BLOCK) {
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++)
      w[t] = (uint32_t)at[4 * t] << 24 | (uint32_t)at[4 * t + 1] << 16 | (uint32_t)at[4 * t + 2] << 8 | at[4 * t + 3];
    for (int t = 16; t < 64; t++) {
      const uint32_t a = w[t - 15], b = w[t - 2];
      w[t] = w[t - 16] + w[t - 7] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int t = 0; t < 64; t++) {
      const uint32_t a = v[0], e = v[4];
      const uint32_t first = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + K[t] + w[t];
      const uint32_t second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
      v[7] = v[6], v[6] = v[5], v[5] = e, v[4] = v[3] + first;
      v[3] = v[2], v[2] = v[1], v[1] = a, v[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
      h[i] += v[i];
  }
}

void ts_sha256(const void *bytes, size_t size, uint8_t digest[TS_SHA256_BYTES]) {
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = size / BLOCK, rest = size % BLOCK;
  uint8_t last[2 * BLOCK] = {0}; /* what is left, a one bit, zeros, and the length in bits */
  if (whole) digest_blocks(h, bytes, whole);
  if (rest) memcpy(last, (const uint8_t *)bytes + whole * BLOCK, rest);
  last[rest] = 0x80;
  const size_t blocks = rest + 9 <= BLOCK ? 1 : 2;
  for (int i = 0; i < 8; i++)
    last[blocks * BLOCK - 1 - i] = (uint8_t)((uint64_t)size * 8 >> (8 * i));
  digest_blocks(h, last, blocks);
  for (int i = 0; i < TS_SHA256_BYTES; i++)
    digest[i] = (uint8_t)(h[i / 4] >> (24 - i % 4 * 8));
}

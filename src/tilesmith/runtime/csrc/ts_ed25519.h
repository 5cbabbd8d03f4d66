/* Verifying signatures: ed25519 (RFC 8032, section 5.1.7). */
#ifndef TS_ED25519_H
#define TS_ED25519_H

#include <stddef.h>
#include <stdint.h>

/* 1 if `signature` is that of the message by the owner of `key`, else 0. Stricter than the RFC demands, as most
 * libraries are: S is below the order of the group, the key and R have their one spelling, the equation holds without
 * the cofactor, and a key of small order, for which anybody can sign, has no signatures. Nothing here is secret, so
 * nothing takes a constant time. Nothing is allocated. */
int ts_ed25519_verify(const uint8_t key[32], const uint8_t signature[64], const void *message, size_t size);

/* 1 if signatures of a key can be verified: it is a point of the curve in its one spelling, and not of small order. */
int ts_ed25519_is_key(const uint8_t key[32]);

#endif

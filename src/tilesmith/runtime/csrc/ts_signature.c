/* The signature of a package. */
#include "ts_ed25519.h"
#include "ts_package.h"
#include "ts_plan.h"

#include <string.h>

static const char SIGNED[] = "tilesmith package 1\n"; /* a key that signs other things signs no package by that */

ts_status ts_package_check_signature(const ts_package *package, const uint8_t public_key[32], ts_error *error) {
  if (package == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "package must not be NULL");
  const ts_package_facts *facts = ts_package_get_facts(package);
  uint8_t message[sizeof SIGNED - 1 + TS_PACKAGE_DIGEST];
  memcpy(message, SIGNED, sizeof SIGNED - 1);
  memcpy(message + sizeof SIGNED - 1, facts->digest, TS_PACKAGE_DIGEST);
  if (!facts->is_signed) return ts_fail(error, TS_NOT_FOUND, "the package is not signed");
  if (public_key != NULL && memcmp(public_key, facts->public_key, sizeof facts->public_key) != 0)
    return ts_fail(error, TS_BAD_PACKAGE, "the package is signed by another key");
  if (!ts_ed25519_verify(facts->public_key, facts->signature, message, sizeof message))
    return ts_fail(error, TS_BAD_PACKAGE, "the signature of the package is wrong: its key did not sign these bytes");
  return TS_OK;
}

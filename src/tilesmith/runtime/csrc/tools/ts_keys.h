/* Files of public keys, as `tilesmith package trust` writes them: a line `ed25519:BASE64 NAME` for each key, with
 * `revoked ` before one whose packages nobody installs. Lines that begin with `#` are comments. */
#ifndef TS_KEYS_H
#define TS_KEYS_H

#include <stdint.h>

#define TS_KEYS_NAME 64 /* bytes of a name, with its closing 0 */

typedef enum ts_key_standing { TS_KEY_UNKNOWN, TS_KEY_TRUSTED, TS_KEY_REVOKED } ts_key_standing;

/* What the file in `text` says of a key; its name, if it is there. One line that revokes it outweighs all others. */
ts_key_standing ts_keys_find(const char *text, const uint8_t key[32], char name[TS_KEYS_NAME]);

#endif

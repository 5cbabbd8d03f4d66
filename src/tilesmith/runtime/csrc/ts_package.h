/* Kernel packages: plans, binaries and database rows in one file, `.kdb`. docs/reference/package.md has every byte.
 *
 * A package is read where it lies: a mapped file, or an array that is linked in. All functions may be called by any
 * number of threads at a time. What a call returns has been compared with its digest, and is in memory that no other
 * process can change.
 */
#ifndef TS_PACKAGE_H
#define TS_PACKAGE_H

#include "tilesmith_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TS_PACKAGE_DIGEST 32
#define TS_PACKAGE_MOST_SIZE ((uint64_t)1 << 26)    /* bytes of an entry, inflated */
#define TS_PACKAGE_MOST_ROWS ((uint64_t)1 << 24)    /* the same, of rows */
#define TS_PACKAGE_MOST_NAME 8192                   /* bytes of an entry's name */
#define TS_PACKAGE_MOST_ENTRIES ((uint32_t)1 << 22) /* of a package */

typedef struct ts_package ts_package;

/* The kind of an entry, and what its name consists of (parts are separated by line feeds). */
typedef enum ts_entry_kind {
  TS_ENTRY_PLAN = 1, /* PROBLEM, TARGET; the serialised plan. Rank 0 is the best */
  TS_ENTRY_BINARY,   /* the sha256 of its bytes, in hex; a shared object or a cubin */
  TS_ENTRY_FIND,     /* PROBLEM, TARGET; the sealed rows of the find-db, a line of JSON each, the fastest first */
  TS_ENTRY_PERF      /* PROBLEM, TARGET, SOLVER; the sealed rows of the perf-db, the same */
} ts_entry_kind;

/* The header. Texts end with a NUL and live as long as the package. */
typedef struct ts_package_facts {
  const char *name;
  const char *target;    /* what its plans were made for */
  const char *maker;     /* the version that wrote it */
  const char *generator; /* the digest of the generator of its plans; `mixed` for several */
  uint64_t counter;      /* grows with each release of a package of this name */
  uint64_t date;         /* seconds since 1970, as its maker said; 0: not said */
  uint32_t entries;
  int is_signed;                     /* a signature is there: ts_package_check_signature */
  uint8_t digest[TS_PACKAGE_DIGEST]; /* of all that is not the signature: the identity of the package */
  uint8_t public_key[32];
  uint8_t signature[64];
} ts_package_facts;

/* How an entry is stored. */
typedef enum ts_form {
  TS_FORM_PLAIN = 0,
  TS_FORM_DEFLATED, /* RFC 1951 */
  TS_FORM_LZMA      /* in packages of version 2 */
} ts_form;

typedef struct ts_entry {
  ts_entry_kind kind;
  uint32_t rank;
  uint32_t revision; /* of a plan's solver */
  ts_form form;
  double time_us;   /* the measured median of a plan's run; 0: not measured */
  const char *name; /* `name_bytes` printable bytes, no NUL at their end; lives as long as the package */
  size_t name_bytes;
  uint64_t stored_bytes;        /* in the file */
  uint64_t size;                /* of the content */
  const uint8_t *digest;        /* sha256 of the content */
  const uint8_t *stored_digest; /* sha256 of the bytes in the file */
} ts_entry;

/* Open a package that lies in memory, which must stay as it is until ts_package_close: an array of the program. */
ts_status ts_package_open(const void *bytes, size_t size, ts_package **package, ts_error *error);
/* The same for a file, which is mapped. Never waits: a pipe or a device is refused. A file may be removed or replaced
 * (renamed over) meanwhile. One that is written to in place is refused from then on; only a process that cuts it while
 * a call reads it ends this one. */
ts_status ts_package_open_file(const char *path, ts_package **package, ts_error *error);
void ts_package_close(ts_package *package);

const ts_package_facts *ts_package_get_facts(const ts_package *package);

/* TS_OK if the package has a signature of its public key, and that is `public_key` (32 bytes; NULL: any key).
 * TS_NOT_FOUND if it has none. The signature covers every other byte: what is read of this very `package` from then on
 * was signed. Opening never asks for it. */
ts_status ts_package_check_signature(const ts_package *package, const uint8_t public_key[32], ts_error *error);

/* The entry at `index`, from 0 on, in the order of kind, name (bytes) and rank. */
ts_status ts_package_entry(const ts_package *package, uint32_t index, ts_entry *entry, ts_error *error);
/* The index of an entry; TS_NOT_FOUND, without a message, if there is none. */
ts_status ts_package_find(const ts_package *package, ts_entry_kind kind, const char *name, size_t name_bytes,
                          uint32_t rank, uint32_t *index, ts_error *error);
/* The content of an entry, inflated: `size` bytes into `content`, which has room for `capacity`. Nothing is allocated.
 */
ts_status ts_package_read(const ts_package *package, uint32_t index, void *content, size_t capacity, ts_error *error);
/* The `stored_bytes` bytes of an entry as they lie in the file. */
ts_status ts_package_read_stored(const ts_package *package, uint32_t index, void *stored, size_t capacity,
                                 ts_error *error);
/* Read every byte: all digests hold, every plan is one and has its binaries. */
ts_status ts_package_verify(const ts_package *package, ts_error *error);

#ifdef __cplusplus
}
#endif

#endif

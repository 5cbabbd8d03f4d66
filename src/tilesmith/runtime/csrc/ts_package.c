/* Reads kernel packages. docs/reference/package.md describes the form; package/form.py writes it.
 *
 * Digests make a tree: the header has that of the page table, the table that of each page of the index, the index those
 * of each entry. The table is checked when a package is opened, a page when it is first needed, an entry when it is
 * read. Of a mapped file, what has been checked is kept in memory of its own: no other process can change it
 * afterwards. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "ts_package.h"

#include "ts_inflate.h"
#include "ts_lzma.h"
#include "ts_plan.h"
#include "ts_sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER 512
#define SEALED 480   /* bytes of the header that its last 32 bytes seal */
#define IDENTITY 384 /* bytes of the header that a signature covers */
#define ROW 56       /* of the page table, before the first names */
#define RECORD 112   /* of an entry in its page, before the names */
#define PAGE 64      /* entries of a page; the last one may have fewer */
#define VERSION 2    /* 1: no entry is LZMA */
#define DIGEST TS_PACKAGE_DIGEST

typedef struct page {
  uint64_t at; /* of its bytes in the package */
  uint64_t payload_at;
  uint32_t bytes;
  uint32_t kind; /* kind, rank and name of its first entry */
  uint32_t rank;
  uint32_t name_bytes;
  const char *name;
  const uint8_t *digest;
  _Atomic(uint8_t *) checked; /* its bytes once they have been checked; NULL before */
} page;

struct ts_package {
  ts_package_facts facts;
  const uint8_t *bytes;
  size_t size;
  int file; /* of the mapping; -1 for bytes of the program */
  uint32_t page_count;
  page *pages;
  uint8_t *table; /* header and page table: a copy */
};

typedef struct key {
  uint32_t kind;
  uint32_t rank;
  const char *name;
  size_t name_bytes;
} key;

#define REFUSE(...) return ts_fail(error, TS_BAD_PACKAGE, __VA_ARGS__)

static uint64_t number(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  while (bytes--)
    value = value << 8 | at[bytes];
  return value;
}

static uint32_t u32(const uint8_t *at) {
  return (uint32_t)number(at, 4);
}

static uint64_t u64(const uint8_t *at) {
  return number(at, 8);
}

static int has_digest(const void *bytes, size_t size, const uint8_t *expected) {
  uint8_t found[DIGEST];
  ts_sha256(bytes, size, found);
  return memcmp(found, expected, DIGEST) == 0;
}

static int is_zero(const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i]) return 0;
  return 1;
}

/* Printable ASCII and, in names of entries, line feeds. */
static int is_name(const uint8_t *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (text[i] != '\n' && (text[i] < ' ' || text[i] > '~')) return 0;
  return length > 0 && length <= TS_PACKAGE_MOST_NAME;
}

/* A text of the header: printable, then one NUL at least, nothing but NULs behind it. */
static int is_text(const uint8_t *text, size_t room) {
  const uint8_t *end = memchr(text, 0, room);
  return end != NULL && end > text && is_name(text, (size_t)(end - text)) &&
         memchr(text, '\n', (size_t)(end - text)) == NULL && is_zero(end, room - (size_t)(end - text));
}

/* The name and the target, of which programs make the name of a file: no letter of it leads to another folder. */
static int is_file_text(const uint8_t *text, size_t room) {
  static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._:+-";
  if (!is_text(text, room)) return 0;
  const size_t length = strlen((const char *)text);
  return strchr("._:+-", *text) == NULL && strspn((const char *)text, letters) == length;
}

static int compare(key a, key b) {
  if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
  const int by_name = memcmp(a.name, b.name, a.name_bytes < b.name_bytes ? a.name_bytes : b.name_bytes);
  if (by_name) return by_name;
  if (a.name_bytes != b.name_bytes) return a.name_bytes < b.name_bytes ? -1 : 1;
  return a.rank < b.rank ? -1 : a.rank > b.rank;
}

/* --- opening -------------------------------------------------------------------------------------------------------
 */

static ts_status read_header(ts_package *p, ts_error *error) {
  uint8_t h[HEADER]; /* a copy: what is checked is what is used */
  if (p->size < HEADER || memcmp(memcpy(h, p->bytes, HEADER), "TSKDB\r\n\x1a", 8) != 0)
    REFUSE("these %zu bytes are no package", p->size);
  if (u32(h + 8) < 1 || u32(h + 8) > VERSION) REFUSE("package of version %u, this reads 1 to %d", u32(h + 8), VERSION);
  if (u64(h + 16) != p->size) REFUSE("package of %llu bytes, got %zu", (unsigned long long)u64(h + 16), p->size);
  if (!has_digest(h, SEALED, h + SEALED)) REFUSE("the header of the package is damaged: its checksum is wrong");
  const uint64_t table = u64(h + 32), index = u64(h + 40), payload = u64(h + 48), most = p->size - HEADER;
  if (table > most || index > most - table || payload != most - table - index)
    REFUSE("the parts of the package do not add up to its %zu bytes", p->size);
  const uint32_t entries = u32(h + 24), pages = u32(h + 28);
  if (entries > TS_PACKAGE_MOST_ENTRIES || pages != (entries + PAGE - 1) / PAGE || table / ROW < pages ||
      table > (uint64_t)pages * (ROW + TS_PACKAGE_MOST_NAME))
    REFUSE("package of %u entries in %u pages, with a table of %llu bytes: impossible", entries, pages,
           (unsigned long long)table);
  if (u32(h + 12) != HEADER || u64(h + 56) != 0 || !is_text(h + 112, 32) || !is_file_text(h + 144, 64) ||
      !is_file_text(h + 208, 96) || !is_text(h + 304, 48) || !is_zero(h + 352, IDENTITY - 352) ||
      (is_zero(h + 384, 32) && !is_zero(h + 416, 64)))
    REFUSE("the header of the package breaks its form");
  p->table = malloc(HEADER + (size_t)table);
  if (p->table == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for a table of %zu bytes", (size_t)table);
  memcpy(p->table, h, HEADER);
  memcpy(p->table + HEADER, p->bytes + HEADER, (size_t)table);
  if (!has_digest(p->table + HEADER, (size_t)table, h + 80))
    REFUSE("the table of the package is damaged: its checksum is wrong");
  p->page_count = pages;
  const char *texts = (const char *)p->table;
  p->facts = (ts_package_facts){.generator = texts + 112,
                                .name = texts + 144,
                                .target = texts + 208,
                                .maker = texts + 304,
                                .counter = u64(h + 64),
                                .date = u64(h + 72),
                                .entries = entries,
                                .is_signed = !is_zero(h + 384, 32)};
  memcpy(p->facts.public_key, h + 384, 32);
  memcpy(p->facts.signature, h + 416, 64);
  ts_sha256(h, IDENTITY, p->facts.digest);
  return TS_OK;
}

/* The pages follow each other without a gap, and so do their first names behind the rows of the table. */
static ts_status read_table(ts_package *p, ts_error *error) {
  const uint8_t *h = p->table, *row = h + HEADER;
  const uint64_t table = u64(h + 32), index = u64(h + 40), payload_at = HEADER + table + index;
  uint64_t name_at = (uint64_t)p->page_count * ROW, at = HEADER + table;
  p->pages = calloc(p->page_count ? p->page_count : 1, sizeof *p->pages);
  if (p->pages == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for %u pages", p->page_count);
  for (uint32_t i = 0; i < p->page_count; i++, row += ROW) {
    page *each = &p->pages[i];
    each->at = at;
    each->payload_at = u64(row);
    each->bytes = u32(row + 8);
    each->kind = u32(row + 12);
    each->rank = u32(row + 16);
    each->name_bytes = u32(row + 20);
    each->digest = row + 24;
    each->name = (const char *)h + HEADER + name_at;
    if (each->name_bytes > table - name_at || !is_name((const uint8_t *)each->name, each->name_bytes))
      REFUSE("page %u of the package has a first name of %u bytes beyond its table", i, each->name_bytes);
    if (each->bytes > payload_at - at || each->bytes < RECORD + 1 ||
        each->bytes > PAGE * (RECORD + TS_PACKAGE_MOST_NAME))
      REFUSE("page %u of the package has %u bytes, beyond the index", i, each->bytes);
    if (each->payload_at < (i ? each[-1].payload_at : payload_at) || each->payload_at > p->size ||
        (i == 0 && each->payload_at != payload_at))
      REFUSE("page %u of the package begins at byte %llu, out of order", i, (unsigned long long)each->payload_at);
    name_at += each->name_bytes;
    at += each->bytes;
    if (i && compare((key){each[-1].kind, each[-1].rank, each[-1].name, each[-1].name_bytes},
                     (key){each->kind, each->rank, each->name, each->name_bytes}) >= 0)
      REFUSE("pages %u and %u of the package are not in order", i - 1, i);
  }
  if (name_at != table || at != payload_at || (p->page_count == 0 && payload_at != p->size))
    REFUSE("the table of the package leaves bytes over");
  return TS_OK;
}

static ts_status open_bytes(const void *bytes, size_t size, int file, ts_package **package, ts_error *error) {
  ts_package *made = calloc(1, sizeof *made);
  if (made == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for a package");
  made->bytes = bytes;
  made->size = size;
  made->file = -1;
  ts_status status = read_header(made, error);
  if (status == TS_OK) status = read_table(made, error);
  if (status != TS_OK) {
    ts_package_close(made);
    return status;
  }
  made->file = file; /* from here on ts_package_close unmaps and closes it */
  *package = made;
  return TS_OK;
}

ts_status ts_package_open(const void *bytes, size_t size, ts_package **package, ts_error *error) {
  if (bytes == NULL || package == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "bytes and package must not be NULL");
  *package = NULL;
  return open_bytes(bytes, size, -1, package, error);
}

ts_status ts_package_open_file(const char *path, ts_package **package, ts_error *error) {
  if (path == NULL || package == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "path and package must not be NULL");
  *package = NULL;
  struct stat about;
  if (stat(path, &about) != 0) REFUSE("package %s cannot be read: %s", path, strerror(errno));
  if (!S_ISREG(about.st_mode)) REFUSE("package %s is not a file", path); /* a device may act when it is opened */
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) REFUSE("package %s cannot be read: %s", path, strerror(errno));
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) { /* it has been replaced meanwhile */
    close(file);
    REFUSE("package %s is not a file", path);
  }
  const uint64_t size = (uint64_t)about.st_size;
  void *bytes = MAP_FAILED;
  if (size >= HEADER && size <= SIZE_MAX / 2) bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0);
  ts_status status;
  if (size < HEADER)
    status = ts_fail(error, TS_BAD_PACKAGE, "%s: these %llu bytes are no package", path, (unsigned long long)size);
  else if (bytes == MAP_FAILED)
    status = ts_fail(error, TS_BAD_PACKAGE, "package %s cannot be mapped: %s", path, strerror(errno));
  else
    status = open_bytes(bytes, (size_t)size, file, package, error);
  if (status != TS_OK) {
    if (bytes != MAP_FAILED) munmap(bytes, (size_t)size);
    close(file);
  }
  return status;
}

void ts_package_close(ts_package *package) {
  if (package == NULL) return;
  if (package->file >= 0) {
    for (uint32_t i = 0; i < package->page_count; i++)
      free(atomic_load(&package->pages[i].checked));
    munmap((void *)(uintptr_t)package->bytes, package->size);
    close(package->file);
  }
  free(package->pages);
  free(package->table);
  free(package);
}

const ts_package_facts *ts_package_get_facts(const ts_package *package) {
  return &package->facts;
}

/* --- the index -----------------------------------------------------------------------------------------------------
 */

static uint32_t entries_of(const ts_package *p, uint32_t page_index) {
  const uint32_t left = p->facts.entries - page_index * PAGE;
  return left < PAGE ? left : PAGE;
}

/* An entry of a page whose names lie within it. */
static ts_entry entry_in(const uint8_t *bytes, uint32_t place) {
  const uint8_t *r = bytes + (size_t)place * RECORD;
  const uint64_t bits = u64(r + 40);
  ts_entry entry = {.kind = (ts_entry_kind)r[0],
                    .rank = u32(r + 4),
                    .revision = u32(r + 8),
                    .form = (ts_form)r[1],
                    .name = (const char *)bytes + u32(r + 12),
                    .name_bytes = u32(r + 16),
                    .stored_bytes = u64(r + 24),
                    .size = u64(r + 32),
                    .digest = r + 48,
                    .stored_digest = r + 80};
  memcpy(&entry.time_us, &bits, sizeof entry.time_us);
  return entry;
}

static key key_of(const ts_entry *entry) {
  return (key){(uint32_t)entry->kind, entry->rank, entry->name, entry->name_bytes};
}

static int is_its_digest(const ts_entry *entry) {
  if (entry->name_bytes != 2 * DIGEST) return 0;
  for (int i = 0; i < 2 * DIGEST; i++)
    if (entry->name[i] != "0123456789abcdef"[entry->digest[i / 2] >> (i % 2 ? 0 : 4) & 15]) return 0;
  return 1;
}

/* The largest content of a kind. Reading a plan or rows takes many times their bytes of memory. */
static uint64_t most_of(ts_entry_kind kind) {
  return kind == TS_ENTRY_PLAN ? TS_MAX_PLAN : kind == TS_ENTRY_BINARY ? TS_PACKAGE_MOST_SIZE : TS_PACKAGE_MOST_ROWS;
}

/* Whether each record of a page keeps the rules. */
static ts_status check_page(const ts_package *p, uint32_t index, const uint8_t *bytes, ts_error *error) {
  const page *it = &p->pages[index];
  const uint32_t count = entries_of(p, index);
  const int is_last = index + 1 == p->page_count;
  const uint64_t end = is_last ? p->size : it[1].payload_at;
  uint64_t name_at = (uint64_t)count * RECORD, at = it->payload_at;
  key before = {0, 0, "", 0};
  const uint32_t forms = u32(p->table + 8) == 1 ? TS_FORM_DEFLATED : TS_FORM_LZMA;
  if (name_at > it->bytes) REFUSE("page %u of the package is too short for %u entries", index, count);
  for (uint32_t i = 0; i < count; i++) {
    const uint8_t *r = bytes + (size_t)i * RECORD;
    if (u32(r + 12) != name_at || u32(r + 16) > it->bytes - name_at || !is_name(bytes + name_at, u32(r + 16)))
      REFUSE("entry %u of the package has a name beyond its page, or one that is none", index * PAGE + i);
    name_at += u32(r + 16);
    const ts_entry entry = entry_in(bytes, i);
    if (r[0] < TS_ENTRY_PLAN || r[0] > TS_ENTRY_PERF || r[1] > forms || r[2] || r[3] || u32(r + 20))
      REFUSE("entry %u of the package is of kind %u and form %u, which do not exist", index * PAGE + i, r[0], r[1]);
    if (entry.size < 1 || entry.size > most_of(entry.kind) || entry.stored_bytes < 1 || entry.stored_bytes > end - at ||
        (entry.form ? entry.stored_bytes >= entry.size || entry.size > entry.stored_bytes * TS_INFLATE_MOST
                    : entry.size != entry.stored_bytes))
      REFUSE("entry %u of the package has %llu bytes, %llu inflated: impossible here", index * PAGE + i,
             (unsigned long long)entry.stored_bytes, (unsigned long long)entry.size);
    at += entry.stored_bytes;
    if (!isfinite(entry.time_us) || signbit(entry.time_us) ||
        (entry.kind != TS_ENTRY_PLAN && (entry.rank || entry.revision || entry.time_us != 0)) ||
        (entry.kind == TS_ENTRY_BINARY && !is_its_digest(&entry)))
      REFUSE("entry %u of the package breaks its form", index * PAGE + i);
    const key own = key_of(&entry);
    if (i == 0 ? compare(own, (key){it->kind, it->rank, it->name, it->name_bytes}) != 0 : compare(before, own) >= 0)
      REFUSE("entry %u of the package is out of order", index * PAGE + i);
    before = own;
  }
  if (name_at != it->bytes || at != end) REFUSE("page %u of the package leaves bytes over", index);
  if (!is_last && compare(before, (key){it[1].kind, it[1].rank, it[1].name, it[1].name_bytes}) >= 0)
    REFUSE("page %u of the package is out of order", index);
  return TS_OK;
}

/* Reading a mapping beyond the end of its file ends the process: a file that was cut since it was opened is refused. */
static ts_status check_length(const ts_package *p, ts_error *error) {
  struct stat about = {0};
  if (p->file >= 0 && (fstat(p->file, &about) != 0 || (uint64_t)about.st_size < p->size))
    REFUSE("the file of the package was cut to %lld bytes while it was open", (long long)about.st_size);
  return TS_OK;
}

/* The bytes of a page, which are checked when they are first asked for. */
static ts_status open_page(const ts_package *p, uint32_t index, const uint8_t **bytes, ts_error *error) {
  page *it = &p->pages[index];
  uint8_t *found = atomic_load_explicit(&it->checked, memory_order_acquire);
  *bytes = found;
  if (found != NULL) return TS_OK;
  const uint8_t *there = p->bytes + it->at;
  found = (uint8_t *)(uintptr_t)there;
  ts_status status = check_length(p, error);
  if (status != TS_OK) return status;
  if (p->file >= 0) {
    found = malloc(it->bytes);
    if (found == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for a page of %u bytes", it->bytes);
    memcpy(found, there, it->bytes);
  }
  status = has_digest(found, it->bytes, it->digest)
               ? check_page(p, index, found, error)
               : ts_fail(error, TS_BAD_PACKAGE, "page %u of the package is damaged: its checksum is wrong", index);
  uint8_t *other = NULL;
  if (status == TS_OK && atomic_compare_exchange_strong(&it->checked, &other, found)) {
    *bytes = found;
    return TS_OK;
  }
  if (p->file >= 0) free(found); /* it is damaged, or another thread was faster */
  *bytes = other;
  return status;
}

ts_status ts_package_entry(const ts_package *package, uint32_t index, ts_entry *entry, ts_error *error) {
  if (package == NULL || entry == NULL || index >= package->facts.entries)
    return ts_fail(error, TS_BAD_ARGUMENT, "package has no entry %u", index);
  const uint8_t *bytes;
  ts_status status = open_page(package, index / PAGE, &bytes, error);
  if (status == TS_OK) *entry = entry_in(bytes, index % PAGE);
  return status;
}

ts_status ts_package_find(const ts_package *package, ts_entry_kind kind, const char *name, size_t name_bytes,
                          uint32_t rank, uint32_t *index, ts_error *error) {
  if (package == NULL || name == NULL || index == NULL)
    return ts_fail(error, TS_BAD_ARGUMENT, "package, name and index must not be NULL");
  const key wanted = {(uint32_t)kind, rank, name, name_bytes};
  uint32_t low = 0, high = package->page_count; /* of the last page that begins at the key or before it */
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const page *it = &package->pages[middle];
    if (compare((key){it->kind, it->rank, it->name, it->name_bytes}, wanted) <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return TS_NOT_FOUND;
  const uint32_t page_index = low - 1;
  const uint8_t *bytes;
  ts_status status = open_page(package, page_index, &bytes, error);
  if (status != TS_OK) return status;
  low = 0;
  high = entries_of(package, page_index);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const ts_entry entry = entry_in(bytes, middle);
    const int order = compare(key_of(&entry), wanted);
    if (order == 0) {
      *index = page_index * PAGE + middle;
      return TS_OK;
    }
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return TS_NOT_FOUND;
}

/* --- contents ------------------------------------------------------------------------------------------------------
 */

static uint64_t place_of(const ts_package *p, uint32_t index, const uint8_t *bytes) {
  uint64_t at = p->pages[index / PAGE].payload_at;
  for (uint32_t i = 0; i < index % PAGE; i++)
    at += u64(bytes + (size_t)i * RECORD + 24);
  return at;
}

/* Whether a plan is for the problem and the target in the name of its entry. */
static int is_plan_of(const uint8_t *plan, uint64_t size, const ts_entry *entry) {
  const char *feed = memchr(entry->name, '\n', entry->name_bytes);
  if (feed == NULL) return 0;
  const char *texts[2] = {entry->name, feed + 1};
  const uint64_t lengths[2] = {(uint64_t)(feed - entry->name), entry->name_bytes - (uint64_t)(feed - entry->name) - 1};
  uint64_t at = 24; /* the header of a plan */
  for (int i = 0; i < 2; i++) {
    if (at + 4 > size || u32(plan + at) != lengths[i] || lengths[i] > size - at - 4 ||
        memcmp(plan + at + 4, texts[i], lengths[i]) != 0)
      return 0;
    at += 4 + lengths[i];
  }
  return 1;
}

/* Where an entry's stored bytes lie; they have been compared with their digest. */
static ts_status open_stored(const ts_package *p, uint32_t index, ts_entry *entry, const uint8_t **stored,
                             ts_error *error) {
  ts_status status = ts_package_entry(p, index, entry, error);
  if (status == TS_OK) status = check_length(p, error);
  if (status != TS_OK) return status;
  const uint8_t *page_bytes = atomic_load_explicit(&p->pages[index / PAGE].checked, memory_order_acquire);
  *stored = p->bytes + place_of(p, index, page_bytes);
  if (!has_digest(*stored, (size_t)entry->stored_bytes, entry->stored_digest))
    REFUSE("entry %u of the package is damaged: its checksum is wrong", index);
  return TS_OK;
}

static ts_status check_room(const void *memory, uint64_t needed, size_t capacity, ts_error *error) {
  if (memory != NULL && capacity >= needed) return TS_OK;
  return ts_fail(error, TS_BAD_ARGUMENT, "the entry has %llu bytes, room is for %zu", (unsigned long long)needed,
                 memory == NULL ? (size_t)0 : capacity);
}

ts_status ts_package_read(const ts_package *package, uint32_t index, void *content, size_t capacity, ts_error *error) {
  ts_entry entry;
  const uint8_t *stored;
  ts_status status = open_stored(package, index, &entry, &stored, error);
  if (status == TS_OK) status = check_room(content, entry.size, capacity, error);
  if (status != TS_OK) return status;
  int fits = 1;
  if (entry.form == TS_FORM_DEFLATED)
    fits = ts_inflate(stored, (size_t)entry.stored_bytes, content, (size_t)entry.size);
  else if (entry.form == TS_FORM_LZMA)
    fits = ts_unlzma(stored, (size_t)entry.stored_bytes, content, (size_t)entry.size);
  else
    memcpy(content, stored, (size_t)entry.size);
  if (!fits || !has_digest(content, (size_t)entry.size, entry.digest))
    REFUSE("entry %u of the package does not inflate to what its digest says", index);
  if (entry.kind == TS_ENTRY_PLAN && !is_plan_of(content, entry.size, &entry))
    REFUSE("entry %u of the package holds a plan for another problem or target than its name says", index);
  return TS_OK;
}

ts_status ts_package_read_stored(const ts_package *package, uint32_t index, void *stored, size_t capacity,
                                 ts_error *error) {
  ts_entry entry;
  const uint8_t *there;
  ts_status status = open_stored(package, index, &entry, &there, error);
  if (status == TS_OK) status = check_room(stored, entry.stored_bytes, capacity, error);
  if (status != TS_OK) return status;
  memcpy(stored, there, (size_t)entry.stored_bytes);
  if (!has_digest(stored, (size_t)entry.stored_bytes, entry.stored_digest))
    REFUSE("entry %u of the package changed while it was read", index);
  return TS_OK;
}

/* Whether the bytes are a plan whose binaries the package has. */
static ts_status verify_plan(const ts_package *p, uint32_t index, const void *content, size_t size, ts_error *error) {
  ts_plan *plan;
  ts_error reason;
  ts_status status = ts_plan_open(content, size, &plan, &reason);
  if (status != TS_OK)
    return ts_fail(error, status == TS_NO_MEMORY ? status : TS_BAD_PACKAGE, "entry %u of the package: %s", index,
                   reason.text);
  for (uint32_t i = 0; status == TS_OK && i < ts_plan_get_sizes(plan).artifacts; i++) {
    const uint8_t *digest = ts_plan_get_digest(plan, i);
    char name[2 * DIGEST];
    uint32_t found;
    for (int k = 0; k < 2 * DIGEST; k++)
      name[k] = "0123456789abcdef"[digest[k / 2] >> (k % 2 ? 0 : 4) & 15];
    status = ts_package_find(p, TS_ENTRY_BINARY, name, sizeof name, 0, &found, error);
    if (status == TS_NOT_FOUND)
      status = ts_fail(error, TS_BAD_PACKAGE, "entry %u of the package counts the binary %.16s..., which is missing",
                       index, name);
  }
  ts_plan_close(plan);
  return status;
}

ts_status ts_package_verify(const ts_package *package, ts_error *error) {
  if (package == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "package must not be NULL");
  ts_status status = TS_OK;
  uint8_t *content = NULL;
  size_t room = 0;
  int has_lzma = 0;
  for (uint32_t i = 0; status == TS_OK && i < package->facts.entries; i++) {
    ts_entry entry;
    status = ts_package_entry(package, i, &entry, error);
    if (status == TS_OK && entry.size > room) {
      free(content);
      room = (size_t)entry.size;
      content = malloc(room);
      if (content == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for an entry of %zu bytes", room);
    }
    if (status == TS_OK) status = ts_package_read(package, i, content, room, error);
    if (status == TS_OK && entry.kind == TS_ENTRY_PLAN)
      status = verify_plan(package, i, content, (size_t)entry.size, error);
    has_lzma |= status == TS_OK && entry.form == TS_FORM_LZMA;
  }
  free(content);
  if (status == TS_OK && !has_lzma && u32(package->table + 8) != 1)
    REFUSE("package of version %u, and no entry needs it", u32(package->table + 8));
  return status;
}

/* Serialised plan -> ts_plan. The form is described in plan/serial.py, the rules in plan/check.py. */
#include "ts_plan.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((int64_t)1 << 62)
#define HEADER_BYTES 24

static const struct {
  char name[8];
  int64_t nbytes;
} dtypes[] = {{"fp64", 8},    {"fp32", 4}, {"fp16", 2},  {"bf16", 2}, {"fp8e4m3", 1},
              {"fp8e5m2", 1}, {"int8", 1}, {"int32", 4}, {"tf32", 4}}; /* the last is no slot's, only a tensor map's */
#define SLOT_DTYPES (sizeof dtypes / sizeof *dtypes - 1)

/* Where decoding stands. Once `status` is set, every read returns zeros and every allocation fails. */
typedef struct reader {
  const uint8_t *at;
  const uint8_t *end;
  char *arena; /* next free byte; the arena is large enough for everything that the bytes can hold */
  char *arena_end;
  ts_status status;
  ts_error *error;
} reader;

#define REFUSE(r, ...)                                                                     \
  do {                                                                                     \
    if ((r)->status == TS_OK) (r)->status = ts_fail((r)->error, TS_BAD_PLAN, __VA_ARGS__); \
  } while (0)

static const uint8_t *take(reader *r, size_t count) {
  if (r->status != TS_OK) return NULL;
  if (count > (size_t)(r->end - r->at)) {
    REFUSE(r, "plan ends inside a field, %zu bytes before its end", (size_t)(r->end - r->at));
    return NULL;
  }
  r->at += count;
  return r->at - count;
}

static uint64_t read_bytes(reader *r, size_t count) {
  const uint8_t *bytes = take(r, count);
  uint64_t value = 0;
  for (size_t i = 0; bytes != NULL && i < count; i++)
    value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

static uint32_t read_u8(reader *r) {
  return (uint32_t)read_bytes(r, 1);
}

static uint32_t read_u32(reader *r) {
  return (uint32_t)read_bytes(r, 4);
}

static int64_t read_i64(reader *r) {
  uint64_t bits = read_bytes(r, 8);
  int64_t value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static int64_t read_range(reader *r, const char *name, int64_t least, int64_t most) {
  int64_t value = read_i64(r);
  if (r->status == TS_OK && (value < least || value > most)) {
    REFUSE(r, "%s %lld is not from %lld to %lld", name, (long long)value, (long long)least, (long long)most);
    return least;
  }
  return value;
}

/* A count of entries, each of which takes `least` bytes or more. */
static uint32_t read_count(reader *r, size_t least) {
  uint32_t count = read_u32(r);
  if (r->status == TS_OK && count > (size_t)(r->end - r->at) / least) {
    REFUSE(r, "plan counts %u entries, more than it has bytes for", count);
    return 0;
  }
  return r->status == TS_OK ? count : 0;
}

static void *allocate(reader *r, size_t count, size_t size) {
  size_t bytes = (count * size + 15) & ~(size_t)15;
  if (r->status != TS_OK) return NULL;
  if (bytes > (size_t)(r->arena_end - r->arena)) {
    REFUSE(r, "plan needs more memory than its length allows");
    return NULL;
  }
  void *memory = r->arena;
  r->arena += bytes;
  memset(memory, 0, bytes);
  return memory;
}

/* As Python decodes it: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static int is_utf8(const uint8_t *text, size_t length) {
  for (size_t i = 0; i < length;) {
    const uint8_t first = text[i++];
    if (first < 0x80) continue;
    if (first < 0xC2 || first > 0xF4) return 0;
    const size_t more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    uint8_t least = 0x80, most = 0xBF; /* of the second byte */
    if (first == 0xE0) least = 0xA0;
    if (first == 0xED) most = 0x9F;
    if (first == 0xF0) least = 0x90;
    if (first == 0xF4) most = 0x8F;
    if (more > length - i || text[i] < least || text[i] > most) return 0;
    for (size_t k = 1; k < more; k++)
      if ((text[i + k] & 0xC0) != 0x80) return 0;
    i += more;
  }
  return 1;
}

static const char *read_text(reader *r) {
  uint32_t length = read_count(r, 1);
  const uint8_t *bytes = take(r, length);
  char *text = allocate(r, (size_t)length + 1, 1);
  if (bytes == NULL || text == NULL) return "";
  if (memchr(bytes, 0, length) != NULL) REFUSE(r, "plan holds text with a NUL");
  if (!is_utf8(bytes, length)) REFUSE(r, "plan holds text that is not UTF-8");
  memcpy(text, bytes, length);
  return text;
}

static void read_slot(reader *r, ts_slot *slot) {
  slot->name = read_text(r);
  slot->dtype = read_text(r);
  slot->axes = read_count(r, 16);
  if (slot->axes > TS_MAX_AXES) {
    REFUSE(r, "slot %s has %u axes", slot->name, slot->axes);
    slot->axes = 0;
  }
  int64_t *shape = allocate(r, TS_MAX_AXES, sizeof *shape), *strides = allocate(r, TS_MAX_AXES, sizeof *strides);
  int64_t size = 0, span = 1;
  for (size_t i = 0; i < SLOT_DTYPES; i++)
    if (strcmp(slot->dtype, dtypes[i].name) == 0) size = dtypes[i].nbytes;
  if (size == 0) REFUSE(r, "slot %s: dtype %s does not exist", slot->name, slot->dtype);
  for (uint32_t i = 0; r->status == TS_OK && i < slot->axes; i++)
    shape[i] = read_range(r, "size", 1, INT32_MAX);
  for (uint32_t i = 0; r->status == TS_OK && i < slot->axes; i++) {
    strides[i] = read_range(r, "stride", 0, MAX_BYTES);
    if (strides[i] != 0 && shape[i] - 1 > (MAX_BYTES - span) / strides[i]) {
      REFUSE(r, "slot %s spans more than 2^62 elements", slot->name);
      return;
    }
    span += (shape[i] - 1) * strides[i];
  }
  slot->shape = shape;
  slot->strides = strides;
  slot->nbytes = read_i64(r);
  uint32_t use = read_u8(r);
  if (r->status != TS_OK) return;
  if (span > MAX_BYTES / size || slot->nbytes != span * size)
    REFUSE(r, "slot %s: %lld bytes, but its elements span another size", slot->name, (long long)slot->nbytes);
  if (use > 2) REFUSE(r, "slot %s: use %u is not 0, 1 or 2", slot->name, use);
  slot->is_output = use == 1;
  slot->in_place = use == 2;
}

static ts_pointer read_pointer(reader *r, ts_plan *plan, int64_t *room, int preparing) {
  ts_pointer pointer;
  pointer.space = read_u8(r);
  pointer.index = read_u32(r);
  pointer.offset = read_range(r, "pointer offset", 0, MAX_BYTES);
  *room = 0;
  if (r->status != TS_OK) return pointer;
  int64_t size = 0;
  if (pointer.space == TS_SPACE_SLOT) {
    if (pointer.index >= plan->sizes.slots)
      REFUSE(r, "pointer slot %u of %u", pointer.index, plan->sizes.slots);
    else if (preparing && (pointer.index != 1 || plan->slots[pointer.index].is_output))
      REFUSE(r, "prepare points at slot %u; it may read the filter, slot 1, alone", pointer.index);
    else {
      size = plan->slots[pointer.index].nbytes;
      if (!preparing) plan->slot_used[pointer.index] = 1;
    }
  } else if (pointer.space > TS_SPACE_WORKSPACE || pointer.index != 0)
    REFUSE(r, "pointer into unknown space %u, index %u", pointer.space, pointer.index);
  else
    size = pointer.space == TS_SPACE_PACKED ? plan->sizes.packed_bytes : plan->scratch_offset;
  if (pointer.offset > size)
    REFUSE(r, "pointer offset %lld is beyond %lld bytes", (long long)pointer.offset, (long long)size);
  *room = size - pointer.offset;
  return pointer;
}

static int is_symbol(const char *text) {
  size_t length = strlen(text);
  if (length == 0 || length > TS_MAX_SYMBOL || (*text >= '0' && *text <= '9')) return 0;
  return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == length;
}

/* The rules of plan/check_map.py. */
static void read_map(reader *r, ts_plan *plan, ts_map *map, int preparing) {
  int64_t room = 0;
  map->pointer = read_pointer(r, plan, &room, preparing);
  const char *name = read_text(r);
  map->rank = read_u32(r);
  if (r->status != TS_OK) return;
  const size_t known = SLOT_DTYPES + 1;
  while (map->dtype < known && strcmp(dtypes[map->dtype].name, name) != 0)
    map->dtype++;
  if (map->dtype == known) REFUSE(r, "a tensor map cannot hold dtype %s", name);
  if (map->rank < 1 || map->rank > TS_MAX_MAP_RANK) REFUSE(r, "tensor map of rank %u", map->rank);
  if (map->pointer.offset % 16) REFUSE(r, "tensor map at byte %lld", (long long)map->pointer.offset);
  if (r->status != TS_OK) return;
  const uint32_t rank = map->rank;
  const int64_t itemsize = dtypes[map->dtype].nbytes;
  for (uint32_t i = 0; i < rank; i++)
    map->dims[i] = read_range(r, "tensor map size", 1, (int64_t)1 << 32);
  for (uint32_t i = 1; i < rank; i++) {
    map->strides[i] = read_range(r, "tensor map stride", 16, ((int64_t)1 << 40) - 1);
    if (map->strides[i] % 16) REFUSE(r, "tensor map stride %lld is no multiple of 16", (long long)map->strides[i]);
  }
  for (uint32_t i = 0; i < rank; i++)
    map->steps[i] = read_range(r, "tensor map element stride", 1, 8);
  map->swizzle = read_i64(r);
  map->promotion = read_i64(r);
  map->is_im2col = (int)read_u8(r);
  if (map->is_im2col > 1 || (map->is_im2col && rank < 3)) REFUSE(r, "tensor map of rank %u: is_im2col", rank);
  if (r->status != TS_OK) return;
  int64_t inner;
  if (map->is_im2col) {
    const int64_t limit = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
    for (uint32_t i = 0; i < rank - 2; i++)
      map->lower[i] = read_range(r, "tensor map corner", -limit, limit - 1);
    for (uint32_t i = 0; i < rank - 2; i++)
      map->upper[i] = read_range(r, "tensor map corner", -limit, limit - 1);
    map->channels = inner = read_range(r, "tensor map channels", 1, 256);
    map->pixels = read_range(r, "tensor map pixels", 1, 1024);
  } else {
    for (uint32_t i = 0; i < rank; i++)
      map->box[i] = read_range(r, "tensor map box", 1, 256);
    inner = map->box[0];
  }
  if (r->status != TS_OK) return;
  if (map->swizzle != 0 && map->swizzle != 32 && map->swizzle != 64 && map->swizzle != 128)
    REFUSE(r, "tensor map with swizzle %lld", (long long)map->swizzle);
  if (map->promotion != 0 && map->promotion != 64 && map->promotion != 128 && map->promotion != 256)
    REFUSE(r, "tensor map with L2 promotion %lld", (long long)map->promotion);
  if (inner * itemsize % 16 || (map->swizzle && inner * itemsize > map->swizzle))
    REFUSE(r, "the innermost %lld bytes of a tensor map's load do not fit its swizzle", (long long)(inner * itemsize));
  /* Sizes to 2^32 and strides to 2^40: five of their products could wrap, so each is compared by itself first. */
  int64_t span = map->dims[0] * itemsize;
  for (uint32_t i = 1; i < rank && r->status == TS_OK; i++) {
    if (map->dims[i] - 1 > MAX_BYTES / 8 / map->strides[i]) {
      REFUSE(r, "tensor map spans too much");
      return;
    }
    span += (map->dims[i] - 1) * map->strides[i];
  }
  if (span > room) REFUSE(r, "tensor map of %lld bytes has room for %lld", (long long)span, (long long)room);
}

static void read_cuda_extents(reader *r, ts_step *step) {
  static const int64_t most_grid[] = {INT32_MAX, 65535, 65535}, most_block[] = {1024, 1024, 64};
  int64_t threads = 1, blocks = 1;
  for (int i = 0; i < 3; i++) {
    if (step->grid[i] > most_grid[i] || step->block[i] > most_block[i] || step->cluster[i] > 16) {
      REFUSE(r, "%s: a grid, block or cluster beyond CUDA's limits", step->symbol);
      return;
    }
    threads *= step->block[i];
    blocks *= step->cluster[i];
    if (step->grid[i] % step->cluster[i]) REFUSE(r, "%s: the grid is no multiple of the cluster", step->symbol);
  }
  if (threads > 1024) REFUSE(r, "%s: %lld threads in a block", step->symbol, (long long)threads);
  if (blocks > 16) REFUSE(r, "%s: %lld blocks in a cluster", step->symbol, (long long)blocks);
}

static void read_launch(reader *r, ts_plan *plan, ts_step *step, int preparing) {
  step->artifact = read_u32(r);
  step->symbol = read_text(r);
  int64_t extents[9];
  for (int i = 0; i < 9; i++)
    extents[i] = read_range(r, i < 3 ? "grid" : i < 6 ? "block" : "cluster", i < 3 ? 0 : 1, MAX_BYTES);
  step->items = extents[0];
  step->chunk = extents[3];
  memcpy(step->grid, extents, sizeof step->grid);
  memcpy(step->block, extents + 3, sizeof step->block);
  memcpy(step->cluster, extents + 6, sizeof step->cluster);
  const int cuda = plan->family == TS_CUDA;
  step->shared_bytes = read_range(r, "shared_bytes", 0, cuda ? 256 * 1024 : plan->scratch_stride);
  step->programmatic = (int)read_u8(r);
  uint32_t count = read_count(r, 9);
  if (r->status != TS_OK) return;
  if (step->programmatic > cuda) REFUSE(r, "%s: programmatic %d", step->symbol, step->programmatic);
  if (cuda) read_cuda_extents(r, step);
  if (step->artifact >= plan->sizes.artifacts) REFUSE(r, "artifact %u of %u", step->artifact, plan->sizes.artifacts);
  if (!is_symbol(step->symbol)) REFUSE(r, "symbol %s is no C name of at most %d letters", step->symbol, TS_MAX_SYMBOL);
  if (count > TS_MAX_PARAMETERS) REFUSE(r, "%s: %u parameters, more than %d", step->symbol, count, TS_MAX_PARAMETERS);
  int64_t *scalars = allocate(r, count, sizeof *scalars), scalar_count = 0;
  ts_pointer *pointers = allocate(r, count, sizeof *pointers);
  uint8_t *kinds = allocate(r, count, 1);
  step->maps = allocate(r, count, sizeof *step->maps);
  int64_t bytes = 0;
  for (uint32_t i = 0; r->status == TS_OK && i < count; i++) {
    uint32_t kind = read_u8(r);
    int64_t room = 0;
    kinds[i] = (uint8_t)kind;
    bytes += 8;
    if (kind == TS_PARAMETER_POINTER)
      pointers[step->pointer_count++] = read_pointer(r, plan, &room, preparing);
    else if (kind == TS_PARAMETER_INTEGER || kind == TS_PARAMETER_REAL) /* an integer, or a double's bits */
      scalars[scalar_count++] = read_i64(r);
    else if (kind == TS_PARAMETER_MAP && cuda) {
      ts_map *map = allocate(r, 1, sizeof *map);
      if (map == NULL) return;
      read_map(r, plan, map, preparing);
      step->maps[step->map_count++] = map;
      bytes = ((bytes + 55) & ~INT64_C(63)) + 128;
    } else
      REFUSE(r, "parameter of unknown kind %u", kind);
  }
  if (cuda && bytes > 4096) REFUSE(r, "%s: %lld bytes of parameters", step->symbol, (long long)bytes);
  step->kinds = kinds;
  step->parameter_count = count;
  step->kernel_index = plan->launches++;
  step->first_map = plan->maps;
  plan->maps += step->map_count;
  step->scalars = scalars;
  step->pointers = pointers;
  plan->unbound++;
}

static void read_memset(reader *r, ts_plan *plan, ts_step *step, int preparing) {
  int64_t room = 0;
  step->is_memset = 1;
  step->target = read_pointer(r, plan, &room, preparing);
  step->nbytes = read_range(r, "memset size", 0, MAX_BYTES);
  step->value = (int)read_u8(r);
  if (r->status != TS_OK) return;
  if (step->nbytes > room)
    REFUSE(r, "memset of %lld bytes has room for %lld", (long long)step->nbytes, (long long)room);
  if (step->target.space == TS_SPACE_SLOT && !plan->slots[step->target.index].is_output)
    REFUSE(r, "memset writes slot %u, which is an input", step->target.index);
}

static ts_step *read_steps(reader *r, ts_plan *plan, uint32_t *count, int preparing) {
  *count = read_count(r, 23);
  ts_step *steps = allocate(r, *count, sizeof *steps);
  for (uint32_t i = 0; r->status == TS_OK && i < *count; i++) {
    uint32_t kind = read_u8(r);
    if (kind == 1)
      read_launch(r, plan, &steps[i], preparing);
    else if (kind == 2)
      read_memset(r, plan, &steps[i], preparing);
    else
      REFUSE(r, "step of unknown kind %u", kind);
  }
  return steps;
}

static void read_plan(reader *r, ts_plan *plan) {
  const char *texts[5]; /* problem, target, solver, config, provenance */
  for (int i = 0; i < 5; i++)
    texts[i] = read_text(r);
  plan->problem = texts[0];
  plan->target = texts[1];
  plan->solver = texts[2];
  plan->config = texts[3];
  plan->provenance = texts[4];
  plan->sizes.packed_bytes = read_range(r, "packed_bytes", 0, MAX_BYTES);
  plan->sizes.workspace_bytes = read_range(r, "workspace_bytes", 0, MAX_BYTES);
  plan->scratch_offset = read_range(r, "scratch_offset", 0, MAX_BYTES);
  plan->scratch_stride = read_range(r, "scratch_stride", 0, MAX_BYTES);
  uint32_t threads = plan->sizes.threads = read_u32(r);
  uint32_t alignment = plan->sizes.alignment = read_u32(r);
  uint32_t family = read_u8(r);
  if (r->status != TS_OK) return;
  if (family > TS_CUDA) REFUSE(r, "plan of unknown family %u", family);
  plan->family = (ts_family)family;
  plan->sizes.is_cuda = family == TS_CUDA;
  if (family == TS_CUDA && (threads != 1 || plan->scratch_stride))
    REFUSE(r, "a cuda plan with %u threads and scratch", threads);
  if (threads < 1 || threads > TS_MAX_THREADS) REFUSE(r, "threads %u is not from 1 to %d", threads, TS_MAX_THREADS);
  if (alignment < 1 || alignment > 4096 || (alignment & (alignment - 1)))
    REFUSE(r, "alignment %u is not a power of two up to 4096", alignment);
  if (r->status != TS_OK) return;
  if (plan->scratch_offset % alignment || plan->scratch_stride % alignment)
    REFUSE(r, "scratch is not aligned to %u bytes", alignment);
  int64_t room = plan->sizes.workspace_bytes - plan->scratch_offset;
  if (room < 0 || plan->scratch_stride > room / threads)
    REFUSE(r, "scratch of %u threads ends beyond the workspace of %lld bytes", threads,
           (long long)plan->sizes.workspace_bytes);
  uint32_t slots = read_count(r, 21);
  plan->slots = allocate(r, slots, sizeof *plan->slots);
  plan->slot_used = allocate(r, slots, 1);
  for (uint32_t i = 0; r->status == TS_OK && i < slots; i++)
    read_slot(r, &plan->slots[i]);
  plan->sizes.slots = slots;
  plan->sizes.artifacts = read_count(r, 32);
  uint8_t *digests = allocate(r, plan->sizes.artifacts, 32);
  plan->libraries = allocate(r, plan->sizes.artifacts, sizeof *plan->libraries);
  const uint8_t *bytes = take(r, (size_t)plan->sizes.artifacts * 32);
  if (r->status != TS_OK) return;
  memcpy(digests, bytes, (size_t)plan->sizes.artifacts * 32);
  plan->digests = digests;
  plan->prepare = read_steps(r, plan, &plan->sizes.prepare_steps, 1);
  plan->run = read_steps(r, plan, &plan->sizes.run_steps, 0);
  if (r->status == TS_OK && r->at != r->end) REFUSE(r, "plan goes on after its end");
}

/* The CRC-32 of zlib. */
static uint32_t crc32_of(const uint8_t *bytes, size_t size) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (UINT32_C(0xEDB88320) & (0U - (crc & 1)));
  }
  return ~crc;
}

ts_status ts_plan_open(const void *bytes, size_t size, ts_plan **plan, ts_error *error) {
  if (bytes == NULL || plan == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "bytes and plan must not be NULL");
  *plan = NULL;
  if (size < HEADER_BYTES || memcmp(bytes, "TSPLAN\r\n", 8) != 0)
    return ts_fail(error, TS_BAD_PLAN, "these %zu bytes are no plan", size);
  if (size > TS_MAX_PLAN)
    return ts_fail(error, TS_BAD_PLAN, "plan of %zu bytes; a plan has at most %zu", size, TS_MAX_PLAN);
  reader r = {(const uint8_t *)bytes + 8, (const uint8_t *)bytes + size, NULL, NULL, TS_OK, error};
  uint32_t version = read_u32(&r), crc = read_u32(&r);
  uint64_t length = read_bytes(&r, 8);
  if (version != 2) return ts_fail(error, TS_BAD_PLAN, "plan of version %u, this is version 2", version);
  if (length != size)
    return ts_fail(error, TS_BAD_PLAN, "plan of %llu bytes, got %zu", (unsigned long long)length, size);
  if (crc != crc32_of((const uint8_t *)bytes + 16, size - 16))
    return ts_fail(error, TS_BAD_PLAN, "plan is damaged: its checksum is wrong");

  /* The dearest entries: a slot of 21 bytes takes its record and two arrays, a step of 23 bytes its record. */
  size_t arena = 4096 + size * 24;
  ts_plan *made = calloc(1, sizeof *made);
  if (made != NULL) made->arena = malloc(arena);
  if (made == NULL || made->arena == NULL) {
    free(made);
    return ts_fail(error, TS_NO_MEMORY, "no memory for a plan of %zu bytes", size);
  }
  r.arena = made->arena;
  r.arena_end = r.arena + arena;
  read_plan(&r, made);
  if (r.status != TS_OK) {
    ts_plan_close(made);
    return r.status;
  }
  *plan = made;
  return TS_OK;
}

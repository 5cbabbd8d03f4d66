/* The record that describes a problem: its defaults, its versions, and the calls that read it. */
#include "ts_check.h"

#include <string.h>

_Static_assert(sizeof(ts_desc) == 568, "a field without padding is appended to ts_desc, never inserted");

enum { CONV = 1, GEMM = 2 };
#define LEAST_SIZE 16
#define MOST_SIZE 4096

/* The fields that not every problem reads, with the kind of problem that does. */
#define FIELD(name, readers) {#name, readers, offsetof(ts_desc, name), sizeof(((ts_desc *)0)->name)}
static const struct {
  char name[16];
  uint8_t readers;
  uint16_t offset;
  uint16_t size;
} special[] = {
    FIELD(mode, CONV),
    FIELD(transposed, CONV),
    FIELD(dims, CONV),
    FIELD(layout, CONV),
    FIELD(x_layout, CONV),
    FIELD(w_layout, CONV),
    FIELD(y_layout, CONV),
    FIELD(reserved, 0),
    FIELD(c, CONV),
    FIELD(groups, CONV),
    FIELD(in, CONV),
    FIELD(filter, CONV),
    FIELD(out, CONV),
    FIELD(padding_low, CONV),
    FIELD(padding_high, CONV),
    FIELD(stride, CONV),
    FIELD(dilation, CONV),
    FIELD(output_padding, CONV),
    FIELD(x_pitch_c, CONV),
    FIELD(x_pitch_row, CONV),
    FIELD(x_pitch_plane, CONV),
    FIELD(x_pitch_image, CONV),
    FIELD(x_pitch_channel, CONV),
    FIELD(w_pitch_c, CONV),
    FIELD(w_pitch_row, CONV),
    FIELD(w_pitch_plane, CONV),
    FIELD(w_pitch_image, CONV),
    FIELD(w_pitch_channel, CONV),
    FIELD(y_pitch_c, CONV),
    FIELD(y_pitch_row, CONV),
    FIELD(y_pitch_plane, CONV),
    FIELD(y_pitch_image, CONV),
    FIELD(y_pitch_channel, CONV),
    FIELD(x_offset_c, CONV),
    FIELD(y_offset_c, CONV),
    FIELD(m, GEMM),
    FIELD(batch, GEMM),
    FIELD(trans_a, GEMM),
    FIELD(trans_b, GEMM),
    FIELD(alpha, GEMM),
    FIELD(beta, GEMM),
    FIELD(lda, GEMM),
    FIELD(ldb, GEMM),
    FIELD(ldc, GEMM),
    FIELD(stride_a, GEMM),
    FIELD(stride_b, GEMM),
    FIELD(stride_c, GEMM),
};

static ts_desc defaults(void) {
  ts_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.struct_size = sizeof desc;
  desc.abi_version = TS_ABI_VERSION;
  desc.workspace_limit = -1;
  desc.slope = 0.01, desc.high = 6;
  desc.dims = 2, desc.groups = 1;
  desc.n = desc.c = desc.k = desc.m = -1; /* must be given */
  for (int i = 0; i < 3; i++)
    desc.stride[i] = desc.dilation[i] = 1;
  desc.batch = 1, desc.alpha = 1;
  desc.stride_a = desc.stride_b = desc.stride_c = -1;
  return desc;
}

static ts_status check_version(uint32_t size, uint32_t abi, ts_error *error) {
  if (abi != TS_ABI_VERSION)
    return ts_fail(error, TS_BAD_ARGUMENT, "abi_version is %u, this library has %d; call ts_desc_init", abi,
                   TS_ABI_VERSION);
  if (size < LEAST_SIZE || size > MOST_SIZE || size % 8)
    return ts_fail(error, TS_BAD_ARGUMENT, "struct_size %u is no size of a ts_desc; call ts_desc_init", size);
  return TS_OK;
}

ts_status ts_desc_init(ts_desc *desc, size_t struct_size, uint32_t abi_version) {
  if (desc == NULL || struct_size > MOST_SIZE) return TS_BAD_ARGUMENT;
  ts_desc full = defaults();
  full.struct_size = (uint32_t)struct_size;
  ts_status status = check_version(full.struct_size, abi_version, NULL);
  if (status != TS_OK) return status;
  memset(desc, 0, struct_size);
  memcpy(desc, &full, struct_size < sizeof full ? struct_size : sizeof full);
  return TS_OK;
}

ts_status ts_desc_read(const ts_desc *given, ts_desc *desc, ts_error *error) {
  if (given == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "the description is NULL");
  uint32_t head[2];
  memcpy(head, given, sizeof head);
  CHECK(check_version(head[0], head[1], error));
  const ts_desc plain = defaults();
  *desc = plain;
  memcpy(desc, given, head[0] < sizeof *desc ? head[0] : sizeof *desc);
  for (size_t at = sizeof *desc; at < head[0]; at++)
    if (((const uint8_t *)given)[at])
      return ts_fail(error, TS_BAD_ARGUMENT,
                     "byte %zu of the description is %u; this library knows %zu bytes, and 0 "
                     "after them: it is too old for this program",
                     at, ((const uint8_t *)given)[at], sizeof *desc);
  CHECK(ts_in_range("op", desc->op, TS_CONVOLUTION, TS_GEMM, error));
  const int reader = desc->op == TS_GEMM ? GEMM : CONV;
  for (size_t i = 0; i < sizeof special / sizeof *special; i++)
    if (!(special[i].readers & reader) &&
        memcmp((char *)desc + special[i].offset, (const char *)&plain + special[i].offset, special[i].size))
      return ts_fail(error, TS_BAD_PROBLEM, "%s is set, and a %s does not read it; leave it as ts_desc_init wrote it",
                     special[i].name, reader == GEMM ? "GEMM" : "convolution");
  return TS_OK;
}

/* A description as the problem that it means. */
typedef struct problem {
  int op;
  ts_conv conv;
  ts_gemm gemm;
} problem;

static ts_status read_problem(const ts_desc *given, problem *found, ts_error *error) {
  ts_desc desc;
  CHECK(ts_desc_read(given, &desc, error));
  found->op = desc.op;
  CHECK(ts_in_range("deterministic", desc.deterministic, 0, 1, error));
  CHECK(ts_in_range("workspace_limit", desc.workspace_limit, -1, TS_MAX_STRIDE, error));
  return desc.op == TS_GEMM ? ts_gemm_read(&desc, &found->gemm, error) : ts_conv_read(&desc, &found->conv, error);
}

ts_status ts_desc_check(const ts_desc *desc, ts_error *error) {
  problem found;
  return read_problem(desc, &found, error);
}

static void add_axis(ts_shape *shape, int64_t size, int64_t stride) {
  shape->size[shape->axes] = size;
  shape->stride[shape->axes++] = stride;
}

ts_status ts_output_shape(const ts_desc *desc, ts_shape *shape, ts_error *error) {
  problem found;
  CHECK(read_problem(desc, &found, error));
  if (shape == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "the place for the shape is NULL");
  memset(shape, 0, sizeof *shape);
  if (found.op == TS_GEMM) {
    const ts_matrix *c = &found.gemm.c;
    const int64_t lead = c->lead ? c->lead : c->columns;
    if (found.gemm.batch != 1) add_axis(shape, found.gemm.batch, c->step < 0 ? ts_times(c->rows, lead) : c->step);
    add_axis(shape, c->rows, lead);
    add_axis(shape, c->columns, 1);
  } else {
    const ts_view *y = &found.conv.y;
    for (int i = 0; i < y->rank; i++)
      add_axis(shape, y->size[y->order[i]], y->step[y->order[i]]);
    if (y->vector > 1) add_axis(shape, y->vector, 1);
  }
  shape->elements = 1;
  for (uint32_t i = 0; i < shape->axes; i++) {
    if (shape->size[i] == 0) {
      shape->elements = 0;
      break;
    }
    shape->elements += (shape->size[i] - 1) * shape->stride[i];
  }
  return TS_OK;
}

ts_status ts_problem_spelling(const ts_desc *desc, uint32_t index, char *out, size_t room, ts_error *error) {
  if (out == NULL || room == 0) return ts_fail(error, TS_BAD_ARGUMENT, "there is no room for the key");
  *out = 0;
  problem found;
  char key[TS_KEY_ROOM];
  *key = 0;
  CHECK(read_problem(desc, &found, error));
  if (found.op == TS_GEMM) {
    CHECK(ts_gemm_canonical(&found.gemm, error));
    if (index == 0) ts_gemm_key(&found.gemm, key, sizeof key);
  } else {
    CHECK(ts_conv_canonical(&found.conv, error));
    CHECK(ts_conv_spelling(&found.conv, index, key, error));
  }
  const size_t length = strlen(key);
  if (length >= room)
    return ts_fail(error, TS_BAD_ARGUMENT, "the key needs %zu bytes, and there are %zu; TS_KEY_ROOM is enough",
                   length + 1, room);
  memcpy(out, key, length + 1);
  return TS_OK;
}

ts_status ts_problem_key(const ts_desc *desc, char *out, size_t room, ts_error *error) {
  return ts_problem_spelling(desc, 0, out, room, error);
}

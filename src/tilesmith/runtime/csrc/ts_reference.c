/* The plain reference: from a description to its kernel, and its calls. */
#include "ts_reference_parts.h"

#include "ts_pool.h"

#include <string.h>

/* Seconds for each call, gathered operand, product and result, on one thread (a Zen 4), and the least for a thread. */
#define CALL 1e-6
#define GATHERED 1.5e-9
#define PRODUCT 2e-10
#define RESULT 4e-8
#define WORTH_A_THREAD 2e-5

static int64_t channels_of(const ts_view *view) {
  return view->size[TS_C] * view->vector;
}

/* Transposed forward is backward data of the convolution from its output to its input. */
static void untranspose(ts_conv *conv) {
  if (!conv->transposed || conv->mode == TS_BGRAD) return;
  const ts_view x = conv->x;
  conv->x = conv->y, conv->y = x;
  conv->transposed = 0;
  if (conv->mode != TS_WRW) conv->mode = conv->mode == TS_FWD ? TS_BWD : TS_FWD;
}

/* The items of `rows` x `columns` results, `times` as often, each a sum of `length` products. */
static void plan_items(ts_reference *r, double rows, int64_t columns, int64_t times, double length) {
  const int64_t blocks = ts_ref_parts(columns, TS_REF_N);
  const double across = (double)ts_ref_least(columns, TS_REF_N);
  r->items = times * blocks;
  r->seconds = CALL + rows * (double)blocks * (length * (GATHERED + across * PRODUCT) + across * RESULT);
  r->chunk = 1;
  if (r->items > 1 && r->seconds < WORTH_A_THREAD * (double)r->items)
    r->chunk = (int64_t)(WORTH_A_THREAD * (double)r->items / r->seconds);
}

static void plan_conv(ts_reference *r) {
  ts_conv *conv = &r->conv;
  untranspose(conv);
  const int is_bwd = conv->mode == TS_BWD;
  const ts_view *x = &conv->x, *w = &conv->w, *y = &conv->y, *result = is_bwd ? x : y;
  const int64_t groups = conv->groups, from = channels_of(is_bwd ? y : x) / groups, to = channels_of(result) / groups;
  const int64_t taps = w->size[TS_D] * w->size[TS_H] * w->size[TS_W];
  const int64_t pixels = y->size[TS_N] * y->size[TS_D] * y->size[TS_H] * y->size[TS_W];
  r->slots = 3, r->operands = 2;
  if (conv->mode == TS_BGRAD) {
    r->kernel = ts_ref_bgrad;
    r->slots = 2, r->operands = 1;
    r->tiles = conv->transposed ? channels_of(y) : w->size[TS_N]; /* y has no channels where x has none */
    plan_items(r, 1, r->tiles, 1, (double)pixels * TS_REF_N);
  } else if (conv->mode == TS_WRW) {
    r->kernel = ts_ref_wrw;
    r->tiles = ts_ref_parts(from * taps, TS_REF_M);
    plan_items(r, (double)(from * taps * groups), to, r->tiles * groups, (double)pixels);
  } else {
    r->kernel = ts_ref_conv;
    int64_t positions = result->size[TS_N], phases = 1;
    for (int i = 0; i < 3; i++) {
      const int64_t size = result->size[TS_D + i];
      r->phase[i] = is_bwd ? ts_ref_least(conv->stride[i], size) : 1;
      positions *= ts_ref_parts(size, r->phase[i]), phases *= r->phase[i];
    }
    r->tiles = ts_ref_parts(positions, TS_REF_M);
    plan_items(r, (double)positions * (double)(phases * groups), to, r->tiles * phases * groups,
               (double)(from * taps) / (double)phases);
  }
  r->is_blank = conv->is_empty;
}

static void plan_gemm(ts_reference *r) {
  const ts_gemm *g = &r->gemm;
  r->kernel = ts_ref_gemm;
  r->slots = 3, r->operands = 2;
  r->tiles = ts_ref_parts(g->m, TS_REF_M);
  r->is_blank = g->k == 0;
  plan_items(r, (double)g->m * (double)g->batch, g->n, r->tiles * g->batch, (double)g->k);
}

ts_status ts_reference_open(const ts_desc *given, ts_reference *r, ts_error *error) {
  if (r == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "the place for the reference is NULL");
  memset(r, 0, sizeof *r);
  ts_desc desc;
  CHECK(ts_desc_check(given, error));
  CHECK(ts_desc_read(given, &desc, error));
  const ts_epilogue *e = desc.op == TS_GEMM ? &r->gemm.epilogue : &r->conv.epilogue;
  if (desc.op == TS_GEMM) {
    CHECK(ts_gemm_read(&desc, &r->gemm, error));
    plan_gemm(r);
  } else {
    CHECK(ts_conv_read(&desc, &r->conv, error));
    plan_conv(r);
  }
  uint32_t slot = r->operands;
  r->bias = e->bias ? slot++ : 0;
  r->residual = e->residual ? slot++ : 0;
  r->scale = e->scale ? slot++ : 0;
  r->slots = slot + 1;
  return TS_OK;
}

ts_ref_end ts_ref_end_of(const ts_reference *r, void *const *slots) {
  const ts_conv *conv = &r->conv;
  const int is_gemm = r->kernel == ts_ref_gemm;
  ts_ref_end end = {.alpha = 1, .result = slots[r->slots - 1]};
  if (is_gemm) {
    end.alpha = r->gemm.alpha, end.beta = r->gemm.beta;
    end.dtype = r->gemm.c.dtype;
  } else {
    end.dtype = conv->mode == TS_BWD ? conv->x.dtype : conv->mode == TS_WRW ? conv->w.dtype : conv->y.dtype;
  }
  end.epilogue = is_gemm ? r->gemm.epilogue : conv->epilogue;
  end.is_whole = end.dtype == TS_INT32;
  if (r->bias) end.bias = slots[r->bias];
  if (r->residual) end.residual = slots[r->residual];
  if (r->scale) end.scale = slots[r->scale];
  return end;
}

ts_status ts_reference_run(const ts_reference *r, void *const *slots, uint32_t threads) {
  if (r == NULL || slots == NULL || threads == 0) return TS_BAD_ARGUMENT;
  if (r->items == 0) return TS_OK;
  for (uint32_t i = r->is_blank ? r->operands : 0; i < r->slots; i++)
    if (slots[i] == NULL) return TS_BAD_ARGUMENT;
  ts_team team = {threads < TS_MAX_THREADS ? threads : TS_MAX_THREADS, TS_TEAM_NOT_ASKED};
  const ts_work work = {r->kernel, slots, (const void *)r, NULL, 0, r->items, r->chunk};
  ts_team_run(&team, &work);
  ts_team_leave(&team);
  return TS_OK;
}

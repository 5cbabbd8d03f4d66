/* The keys of canonical problems. Their grammar is that of problems/key_text.py, and never changes. */
#include "ts_check.h"

#include <string.h>

const char ts_dtype_names[][8] = {"default", "fp64",    "fp32", "fp16",  "bf16",
                                  "fp8e4m3", "fp8e5m2", "int8", "int32", "tf32"};
const char ts_mode_names[][6] = {"fwd", "bwd", "wrw", "bgrad"};
const char ts_activation_names[][12] = {"none",    "relu", "leaky_relu", "silu",        "gelu",     "clamp",
                                        "sigmoid", "tanh", "hardswish",  "hardsigmoid", "gelu_tanh"};

/* Those behind it came after keys of version 1. */
#define LAST_FIRST_ACTIVATION TS_CLAMP

typedef struct text {
  char *out;
  size_t room;
  size_t length;
} text;

static void put(text *key, const char *word) {
  const size_t count = strlen(word);
  if (key->length + count < key->room) memcpy(key->out + key->length, word, count + 1);
  key->length += count;
}

static void put_number(text *key, int64_t value) {
  char digits[24], *at = digits + sizeof digits;
  *--at = 0;
  uint64_t left = (uint64_t)value; /* never below 0 */
  do
    *--at = (char)('0' + left % 10);
  while (left /= 10);
  put(key, at);
}

static void put_real(text *key, double value) {
  char room[TS_REAL_ROOM];
  put(key, ts_real_text(value, room));
}

static void put_field(text *key, const char *name, int64_t value) {
  put(key, name);
  put_number(key, value);
}

/* The values of the problem's spatial axes. */
static void put_axes(text *key, const char *name, const int64_t values[3], int dims) {
  for (int i = 3 - dims; i < 3; i++) {
    put(key, i == 3 - dims ? name : "x");
    put_number(key, values[i]);
  }
}

static void put_layout(text *key, const ts_view *view) {
  char letters[TS_AXES + 1] = {0};
  for (int i = 0; i < view->rank; i++)
    letters[i] = "NCDHW"[view->order[i]];
  put(key, ts_dtype_names[view->dtype]);
  put(key, ",");
  put(key, letters);
  if (view->vector > 1) put_field(key, "c", view->vector);
}

/* Sizes, or steps, in the order of the layout. */
static void put_in_order(text *key, const ts_view *view, const int64_t values[TS_AXES], int64_t of_vector) {
  for (int i = 0; i < view->rank; i++)
    put_field(key, i ? "x" : "", values[view->order[i]]);
  if (view->vector > 1) put_field(key, "x", of_vector);
}

static void put_view(text *key, const char *name, const ts_view *view) {
  put(key, name);
  put_layout(key, view);
  put(key, ",");
  put_in_order(key, view, view->size, view->vector);
}

static void put_steps(text *key, const char *name, const ts_view *view) {
  if (view->is_dense) return;
  put(key, name);
  put_in_order(key, view, view->step, 1);
}

static int is_late(const ts_epilogue *epilogue) {
  return epilogue->scale || epilogue->activation > LAST_FIRST_ACTIVATION;
}

static void put_tail(text *key, const ts_epilogue *epilogue, int deterministic) {
  const char *between = ";epi=";
  const struct {
    int is_there;
    const char *name;
  } parts[] = {{epilogue->scale == TS_SCALE_TENSOR, "scale_tensor"},
               {epilogue->scale == TS_SCALE_CHANNEL, "scale_channel"},
               {epilogue->bias, "bias"},
               {epilogue->residual, "residual"},
               {epilogue->activation != TS_NONE, ts_activation_names[epilogue->activation]}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].is_there) {
      put(key, between);
      put(key, parts[i].name);
      between = "+";
    }
  if (epilogue->activation == TS_LEAKY_RELU) {
    put(key, "(");
    put_real(key, epilogue->slope);
    put(key, ")");
  } else if (epilogue->activation == TS_CLAMP) {
    put(key, "(");
    put_real(key, epilogue->low);
    put(key, ",");
    put_real(key, epilogue->high);
    put(key, ")");
  }
  if (deterministic) put(key, ";det");
}

static size_t finish(text *key, int64_t workspace_limit) {
  if (workspace_limit >= 0) put_field(key, ";wlim=", workspace_limit);
  return key->length;
}

size_t ts_conv_key(const ts_conv *conv, char *out, size_t room) {
  text key = {out, room, 0};
  int is_uneven = 0;
  for (int i = 0; i < 3; i++)
    is_uneven |= conv->low[i] != conv->high[i];
  put(&key, is_late(&conv->epilogue) || is_uneven || conv->workspace_limit >= 0 ? "conv2;" : "conv1;");
  put(&key, ts_mode_names[conv->mode]);
  put_view(&key, ";x=", &conv->x);
  put_view(&key, ";w=", &conv->w);
  put(&key, ";y=");
  put_layout(&key, &conv->y);
  put_axes(&key, ";stride=", conv->stride, conv->dims);
  put_axes(&key, ";pad=", conv->low, conv->dims);
  put_axes(&key, ";dil=", conv->dilation, conv->dims);
  put_field(&key, ";groups=", conv->groups);
  put(&key, ";acc=");
  put(&key, ts_dtype_names[conv->acc]);
  put_steps(&key, ";xs=", &conv->x);
  put_steps(&key, ";ws=", &conv->w);
  put_steps(&key, ";ys=", &conv->y);
  put_tail(&key, &conv->epilogue, conv->deterministic);
  if (is_uneven) put_axes(&key, ";padhi=", conv->high, conv->dims);
  return finish(&key, conv->workspace_limit);
}

static void put_matrix(text *key, const char *name, const ts_matrix *matrix) {
  put(key, name);
  put(key, ts_dtype_names[matrix->dtype]);
  if (matrix->letter != 'c') put(key, matrix->transposed ? ",t" : ",n");
}

size_t ts_gemm_key(const ts_gemm *gemm, char *out, size_t room) {
  text key = {out, room, 0};
  put(&key, is_late(&gemm->epilogue) || gemm->workspace_limit >= 0 ? "gemm2" : "gemm1");
  put_field(&key, ";m=", gemm->m);
  put_field(&key, ";n=", gemm->n);
  put_field(&key, ";k=", gemm->k);
  put_field(&key, ";batch=", gemm->batch);
  put_matrix(&key, ";a=", &gemm->a);
  put_matrix(&key, ";b=", &gemm->b);
  put_matrix(&key, ";c=", &gemm->c);
  put(&key, ";acc=");
  put(&key, ts_dtype_names[gemm->acc]);
  put(&key, ";alpha=");
  put_real(&key, gemm->alpha);
  put(&key, ";beta=");
  put_real(&key, gemm->beta);
  if (gemm->a.lead) put_field(&key, ";lda=", gemm->a.lead);
  if (gemm->b.lead) put_field(&key, ";ldb=", gemm->b.lead);
  if (gemm->c.lead) put_field(&key, ";ldc=", gemm->c.lead);
  if (gemm->a.step >= 0) put_field(&key, ";sa=", gemm->a.step);
  if (gemm->b.step >= 0) put_field(&key, ";sb=", gemm->b.step);
  if (gemm->c.step >= 0) put_field(&key, ";sc=", gemm->c.step);
  put_tail(&key, &gemm->epilogue, gemm->deterministic);
  return finish(&key, gemm->workspace_limit);
}

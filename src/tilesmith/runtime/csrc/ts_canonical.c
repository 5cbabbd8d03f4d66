/* The one spelling of a convolution: not transposed, at least two spatial axes, default values in fields without
 * effect. The rules are those of problems/canonical.py. */
#include "ts_check.h"

/* Transposed forward is backward data of the convolution from its output to its input. */
static void untranspose(ts_conv *conv) {
  const ts_view x = conv->x;
  conv->x = conv->y;
  conv->y = x;
  conv->transposed = 0;
  conv->swapped = 1;
  if (conv->mode == TS_FWD || conv->mode == TS_BWD) conv->mode = conv->mode == TS_FWD ? TS_BWD : TS_FWD;
}

/* The gradient of a bias reads dy alone, so every problem with this dy is the 1x1 depthwise one. */
static ts_status reduce_to_dy(ts_conv *conv, ts_error *error) {
  static const int order[] = {TS_N, TS_C, TS_D, TS_H, TS_W};
  static const int64_t dense[TS_AXES];
  const int64_t k = conv->y.size[TS_C] * conv->y.vector;
  conv->x = conv->y;
  conv->x.letter = 'x';
  CHECK(ts_view_settle(&conv->x, dense, error));
  conv->w.dtype = conv->y.dtype;
  conv->w.vector = 1;
  for (int axis = 0, at = 0; axis < TS_AXES; axis++) {
    conv->w.size[axis] = axis == TS_N ? k : 1;
    if (axis < TS_D || axis >= TS_AXES - conv->dims) conv->w.order[at++] = order[axis];
  }
  CHECK(ts_view_settle(&conv->w, dense, error));
  conv->groups = k;
  conv->transposed = 0;
  for (int i = 0; i < 3; i++) {
    conv->low[i] = conv->high[i] = conv->output_padding[i] = 0;
    conv->stride[i] = conv->dilation[i] = 1;
  }
  if (conv->acc == TS_TF32) conv->acc = TS_FP32; /* it multiplies nothing */
  return TS_OK;
}

static void add_height(ts_view *view) {
  int at = view->rank++;
  for (; view->order[at - 1] != TS_W; at--)
    view->order[at] = view->order[at - 1];
  view->order[at] = TS_W;
  view->order[at - 1] = TS_H;
  view->step[TS_H] = ts_times(view->step[TS_W], view->size[TS_W]);
}

/* The one high side of all those that give this output: the low one where it does, else the least that does. */
static int64_t canonical_high(const ts_conv *conv, int i) {
  const int64_t size = conv->x.size[TS_D + i], output = conv->y.size[TS_D + i], low = conv->low[i];
  const int64_t reach = conv->dilation[i] * (conv->w.size[TS_D + i] - 1) + 1, stride = conv->stride[i];
  if (reach <= size + 2 * low && (output == 1 || (size + 2 * low - reach) / stride + 1 == output)) return low;
  const int64_t least = (output - 1) * stride + reach - size - low;
  return least > 0 ? least : 0;
}

ts_status ts_conv_canonical(ts_conv *conv, ts_error *error) {
  if (conv->is_empty) return TS_OK; /* its key is that of the description as it is */
  if (conv->mode == TS_BGRAD)
    CHECK(reduce_to_dy(conv, error));
  else if (conv->transposed)
    untranspose(conv);
  if (conv->dims == 1) {
    add_height(&conv->x);
    add_height(&conv->w);
    add_height(&conv->y);
    conv->dims = 2;
  }
  for (int i = 0; i < 3; i++) {
    const int64_t size = conv->x.size[TS_D + i], taps = conv->w.size[TS_D + i];
    if (taps == 1) conv->dilation[i] = 1;
    conv->high[i] = canonical_high(conv, i);
    if (conv->y.size[TS_D + i] > 1) continue;
    conv->stride[i] = size + conv->low[i] + conv->high[i] - conv->dilation[i] * (taps - 1);
    if (conv->stride[i] > TS_MAX_SIZE)
      REFUSE("spatial axis %d: the padded input and its one output are %lld elements apart; sizes end at 2^31-1",
             i - 3 + conv->dims, (long long)conv->stride[i]);
  }
  return TS_OK;
}

/* A convolution's description, checked: sizes, layouts, steps. */
#include "ts_check.h"

#include <stdio.h>
#include <string.h>

static const char PITCHES[TS_AXES][8] = {"image", "channel", "plane", "row", "c"};

static ts_status read_layout(const char *name, uint32_t layout, int dims, ts_view *view, ts_error *error) {
  static const uint32_t usual[] = {TS_NCW, TS_NCHW, TS_NCDHW};
  if (layout == 0) layout = usual[dims - 1];
  view->rank = dims + 2;
  view->vector = layout >> 24 ? layout >> 24 : 1;
  uint32_t seen = 0, left = layout & 0xFFFFFF;
  for (int i = 0; i < view->rank; i++, left >>= 4) {
    view->order[i] = (int)(left & 15) - TS_AXIS_N;
    if (left & 15) seen |= UINT32_C(1) << ((left & 15) - TS_AXIS_N);
  }
  const uint32_t wanted = 1 << TS_N | 1 << TS_C | 1 << TS_W | (dims > 1) << TS_H | (dims > 2) << TS_D;
  if (left || seen != wanted) {
    static const char axes[][6] = {"NCW", "NCHW", "NCDHW"};
    char letters[7] = "";
    left = layout & 0xFFFFFF;
    for (int i = 0; left; i++, left >>= 4)
      letters[i] = "?NCDHW??????????"[left & 15];
    REFUSE("%s %s (0x%x) is no order of %s, the axes of dims %d", name, letters, (unsigned)layout, axes[dims - 1],
           dims);
  }
  if (view->vector != 1 && view->vector != 4 && view->vector != 8 && view->vector != 16 && view->vector != 32)
    REFUSE("%s 0x%x: the vector width %d is none of 4, 8, 16, 32", name, (unsigned)layout, (int)view->vector);
  return TS_OK;
}

/* Put the values of the spatial axes in their places, and check them. */
static ts_status read_axes(const char *name, const int64_t given[3], int dims, int64_t least, int64_t unit,
                           int64_t axes[3], ts_error *error) {
  axes[0] = axes[1] = axes[2] = unit;
  for (int i = 0; i < 3; i++) {
    if (i < dims) axes[3 - dims + i] = given[i];
    if (i < dims ? given[i] >= least && given[i] <= TS_MAX_SIZE : given[i] == unit || given[i] == 0) continue;
    char item[32];
    snprintf(item, sizeof item, "%s[%d]", name, i);
    CHECK(ts_in_range(item, given[i], least, TS_MAX_SIZE, error));
    REFUSE("%s is %lld, and there are %d spatial axes", item, (long long)given[i], dims);
  }
  return TS_OK;
}

/* The sizes of a tensor with `first` and `channels`; the image's are there already. */
static ts_status read_sizes(ts_view *view, int64_t first, int64_t channels, ts_error *error) {
  if (channels % view->vector)
    REFUSE("%lld channels of %c do not divide by the vector width %d", (long long)channels, view->letter,
           (int)view->vector);
  view->size[TS_N] = first;
  view->size[TS_C] = channels / view->vector;
  if (view->size[TS_C] > TS_MAX_SIZE)
    REFUSE("%lld channels of %c; sizes end at 2^31-1", (long long)channels, view->letter);
  return TS_OK;
}

ts_status ts_view_settle(ts_view *view, const int64_t given[TS_AXES], ts_error *error) {
  /* What lies inside an axis: as the steps are given, as they are kept, and without gaps. */
  int64_t room = view->vector, inner = view->vector, dense = view->vector;
  int is_given = 0, is_empty = 0;
  view->is_dense = 1;
  for (int i = view->rank - 1; i >= 0; i--) {
    const int axis = view->order[i];
    const int64_t size = view->size[axis], step = given[axis] ? given[axis] : room;
    if (given[axis] < 0 || given[axis] > TS_MAX_STRIDE)
      REFUSE("%c_pitch_%s is %lld; it is from 1 to 2^62, or 0 for a dense one", view->letter, PITCHES[axis],
             (long long)given[axis]);
    if (size != 1 && step < inner)
      REFUSE("%c_pitch_%s is %lld: inside it lie %lld elements", view->letter, PITCHES[axis], (long long)step,
             (long long)inner);
    is_given |= given[axis] != 0;
    is_empty |= size == 0;
    /* The step of a single element changes no address. It is kept as the dense one, but makes room. */
    view->step[axis] = size == 1 ? inner : step;
    view->is_dense &= view->step[axis] == dense;
    inner = ts_times(view->step[axis], size);
    dense = ts_times(dense, size);
    room = ts_times(step, size) > inner ? ts_times(step, size) : inner;
  }
  if (is_empty && !is_given) return TS_OK; /* nothing of any span */
  ts_wide distance = {0, view->vector - 1};
  for (int i = 0; i < view->rank; i++)
    ts_add(&distance, view->size[view->order[i]] - 1, view->step[view->order[i]]);
  return ts_check_span(view->letter, distance, error);
}

static ts_status settle(ts_view *view, const int64_t given[TS_AXES], ts_error *error) {
  for (int axis = TS_D; axis < TS_AXES - view->rank + 2; axis++)
    if (given[axis]) REFUSE("%c_pitch_%s goes with more spatial axes", view->letter, PITCHES[axis]);
  return ts_view_settle(view, given, error);
}

/* The channels before the first one must lie within what the next axis outside leaves room for. */
static ts_status check_offset(const ts_view *view, int64_t offset, ts_error *error) {
  char name[] = "x_offset_c";
  name[0] = view->letter;
  CHECK(ts_in_range(name, offset, 0, TS_MAX_SIZE, error));
  if (offset % view->vector)
    REFUSE("%s is %lld, no multiple of the vector width %d", name, (long long)offset, (int)view->vector);
  int at = view->rank - 1;
  while (view->order[at] != TS_C)
    at--;
  const int64_t wanted = ts_times(offset / view->vector + view->size[TS_C], view->step[TS_C]);
  while (--at >= 0)
    if (view->size[view->order[at]] > 1) {
      if (offset && view->step[view->order[at]] < wanted)
        REFUSE("%s is %lld: with the channels that is %lld elements, and the pitch around them has %lld", name,
               (long long)offset, (long long)wanted, (long long)view->step[view->order[at]]);
      break;
    }
  return TS_OK;
}

/* The image of y, from all else. */
static ts_status derive_output(ts_conv *conv, const int64_t filter[3], ts_error *error) {
  for (int i = 0; i < 3; i++) {
    const int64_t size = conv->x.size[TS_D + i], low = conv->low[i], high = conv->high[i], stride = conv->stride[i];
    const int64_t reach = conv->dilation[i] * (filter[i] - 1) + 1;
    int64_t result;
    if (conv->transposed) {
      if (conv->output_padding[i] >= stride)
        REFUSE("output_padding %lld must be smaller than the stride %lld", (long long)conv->output_padding[i],
               (long long)stride);
      result = (size - 1) * stride - low - high + reach + conv->output_padding[i];
    } else {
      if (conv->output_padding[i])
        REFUSE("output_padding %lld goes with transposed = 1 only", (long long)conv->output_padding[i]);
      if (reach > size + low + high)
        REFUSE("a filter of reach %lld (size %lld, dilation %lld) is wider than the padded input %lld + %lld + %lld",
               (long long)reach, (long long)filter[i], (long long)conv->dilation[i], (long long)size, (long long)low,
               (long long)high);
      result = (size + low + high - reach) / stride + 1;
    }
    if (result < 1 || result > TS_MAX_SIZE)
      REFUSE("spatial axis %d: output size %lld is outside 1 to 2^31-1", i - 3 + conv->dims, (long long)result);
    conv->y.size[TS_D + i] = result;
  }
  return TS_OK;
}

static ts_status check_output(const ts_conv *conv, const int64_t given[3], ts_error *error) {
  for (int i = 0; i < 3; i++) {
    const int64_t derived = i < conv->dims ? conv->y.size[TS_AXES - conv->dims + i] : 0;
    if (given[i] && given[i] != derived)
      REFUSE("out[%d] is %lld; the other fields give %lld%s", i, (long long)given[i], (long long)derived,
             conv->transposed ? " (output_padding adds to it)" : "");
  }
  return TS_OK;
}

static ts_status read_channels(const ts_desc *desc, ts_conv *conv, ts_error *error) {
  CHECK(ts_check_size("n", desc->n, 0, TS_MAX_SIZE, error));
  CHECK(ts_check_size("c", desc->c, desc->transposed ? 1 : 0, TS_MAX_STRIDE, error));
  CHECK(ts_check_size("k", desc->k, 1, TS_MAX_SIZE, error));
  CHECK(ts_in_range("groups", desc->groups, 1, TS_MAX_SIZE, error));
  if (desc->c % desc->groups)
    REFUSE("groups %lld does not divide the %lld input channels", (long long)desc->groups, (long long)desc->c);
  if (desc->k % desc->groups)
    REFUSE("groups %lld does not divide the %lld output channels", (long long)desc->groups, (long long)desc->k);
  if (desc->transposed && desc->c > TS_MAX_SIZE) REFUSE("c is %lld; sizes end at 2^31-1", (long long)desc->c);
  conv->groups = desc->groups;
  const int64_t first = desc->transposed ? desc->c : desc->k, second = desc->transposed ? desc->k : desc->c;
  CHECK(read_sizes(&conv->x, desc->n, desc->c, error));
  CHECK(read_sizes(&conv->w, first, second / desc->groups, error));
  return read_sizes(&conv->y, desc->n, desc->c ? desc->k : 0, error); /* no channels of no channels, as in PyTorch */
}

ts_status ts_conv_read(const ts_desc *desc, ts_conv *conv, ts_error *error) {
  memset(conv, 0, sizeof *conv);
  CHECK(ts_in_range("mode", desc->mode, TS_FWD, TS_BGRAD, error));
  CHECK(ts_in_range("transposed", desc->transposed, 0, 1, error));
  CHECK(ts_in_range("dims", desc->dims, 1, 3, error));
  conv->mode = desc->mode, conv->transposed = desc->transposed, conv->dims = desc->dims;
  conv->deterministic = desc->deterministic, conv->workspace_limit = desc->workspace_limit;
  conv->x.letter = 'x', conv->w.letter = 'w', conv->y.letter = 'y';
  const int32_t layouts[] = {desc->x_layout, desc->w_layout, desc->y_layout};
  const char *names[] = {"x_layout", "w_layout", "y_layout"};
  ts_view *views[] = {&conv->x, &conv->w, &conv->y};
  for (int i = 0; i < 3; i++)
    CHECK(read_layout(layouts[i] ? names[i] : "layout", (uint32_t)(layouts[i] ? layouts[i] : desc->layout), desc->dims,
                      views[i], error));
  const int dims = desc->dims;
  CHECK(read_axes("in", desc->in, dims, 1, 1, conv->x.size + TS_D, error));
  CHECK(read_axes("filter", desc->filter, dims, 1, 1, conv->w.size + TS_D, error));
  CHECK(read_axes("stride", desc->stride, dims, 1, 1, conv->stride, error));
  CHECK(read_axes("dilation", desc->dilation, dims, 1, 1, conv->dilation, error));
  CHECK(read_axes("padding_low", desc->padding_low, dims, 0, 0, conv->low, error));
  CHECK(read_axes("padding_high", desc->padding_high, dims, 0, 0, conv->high, error));
  CHECK(read_axes("output_padding", desc->output_padding, dims, 0, 0, conv->output_padding, error));
  CHECK(ts_read_epilogue(desc, &conv->epilogue, error));
  int dtypes[4];
  CHECK(ts_read_dtypes(desc, desc->mode, &conv->epilogue, dtypes, error));
  conv->x.dtype = dtypes[0], conv->w.dtype = dtypes[1], conv->y.dtype = dtypes[2], conv->acc = dtypes[3];
  CHECK(read_channels(desc, conv, error));
  const ts_epilogue *e = &conv->epilogue;
  if ((e->bias || e->residual || e->scale || e->activation) && desc->mode != TS_FWD && desc->mode != TS_BWD)
    REFUSE("a bias, a residual, a scale and an activation go with mode fwd or bwd, got %s", ts_mode_names[desc->mode]);
  CHECK(derive_output(conv, conv->w.size + TS_D, error));
  CHECK(check_output(conv, desc->out, error));
  const int64_t x[] = {desc->x_pitch_image, desc->x_pitch_channel, desc->x_pitch_plane, desc->x_pitch_row,
                       desc->x_pitch_c};
  const int64_t w[] = {desc->w_pitch_image, desc->w_pitch_channel, desc->w_pitch_plane, desc->w_pitch_row,
                       desc->w_pitch_c};
  const int64_t y[] = {desc->y_pitch_image, desc->y_pitch_channel, desc->y_pitch_plane, desc->y_pitch_row,
                       desc->y_pitch_c};
  CHECK(settle(&conv->x, x, error));
  CHECK(settle(&conv->w, w, error));
  CHECK(settle(&conv->y, y, error));
  conv->is_empty = conv->x.size[TS_N] == 0 || conv->x.size[TS_C] == 0;
  CHECK(check_offset(&conv->x, desc->x_offset_c, error));
  return check_offset(&conv->y, desc->y_offset_c, error);
}

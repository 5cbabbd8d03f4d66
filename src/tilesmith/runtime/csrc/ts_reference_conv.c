/* Forward and backward data. A tile has positions of the result; each sum runs over taps and channels of the source. */
#include "ts_reference_parts.h"

#include <string.h>

enum { SHORT_ROW = 4 }; /* channels that are not worth a call for each position */

/* Backward data: positions of a tile are `phase` apart, so that they all meet the same taps. */
typedef struct ts_ref_window {
  const ts_conv *conv;
  const ts_view *source;
  const ts_view *result;
  int is_bwd;
  int64_t group;
  int64_t from; /* channels of the source and of the result in a group */
  int64_t to;
  int64_t first;              /* channel of the result in its group */
  int64_t place[3][TS_REF_M]; /* of each row in the result's image */
  int64_t image[TS_REF_M];    /* where the row's image of the source begins */
  int64_t out[TS_REF_M];      /* where the row lies in the result */
  int64_t channel[TS_REF_N];  /* where each column lies in the result */
  int64_t weight[TS_REF_N];   /* and in the filter */
} ts_ref_window;

/* Where the source's element lies that a tap meets at each position, along one axis; -1: outside of the image. */
static void locate(const ts_ref_window *w, int axis, int64_t tap, int64_t rows, int64_t *at) {
  const ts_conv *conv = w->conv;
  const int64_t stride = conv->stride[axis], low = conv->low[axis], size = w->source->size[TS_D + axis];
  const int64_t step = w->source->step[TS_D + axis], moved = tap * conv->dilation[axis];
  for (int64_t m = 0; m < rows; m++) {
    int64_t place;
    if (w->is_bwd) {
      const int64_t shifted = w->place[axis][m] + low - moved;
      place = shifted < 0 || stride == 1 ? shifted : shifted / stride;
    } else {
      place = w->place[axis][m] * stride - low + moved;
    }
    at[m] = place >= 0 && place < size ? place * step : -1;
  }
}

/* Whether no position of the tile meets the tap. */
static int is_between(const ts_ref_window *w, int axis, int64_t tap) {
  const ts_conv *conv = w->conv;
  return w->is_bwd && (w->place[axis][0] + conv->low[axis] - tap * conv->dilation[axis]) % conv->stride[axis] != 0;
}

/* Lays out the tile of `item`; 0 if it has no row. */
static int place_tile(const ts_reference *r, int64_t item, ts_ref_window *w, ts_ref_tile *tile) {
  const ts_conv *conv = w->conv;
  const ts_view *result = w->result;
  const int64_t blocks = ts_ref_parts(w->to, TS_REF_N), images = result->size[TS_N];
  w->first = item % blocks * TS_REF_N, item /= blocks;
  w->group = item % conv->groups, item /= conv->groups;
  const int64_t begin = item % r->tiles * TS_REF_M;
  int64_t phase = item / r->tiles, first[3], count[3], positions = images;
  for (int axis = 2; axis >= 0; axis--) {
    first[axis] = phase % r->phase[axis], phase /= r->phase[axis];
    count[axis] = ts_ref_parts(result->size[TS_D + axis] - first[axis], r->phase[axis]);
    positions *= count[axis];
  }
  if (begin >= positions) return 0;
  ts_ref_begin(tile, ts_ref_least(positions - begin, TS_REF_M), ts_ref_least(w->to - w->first, TS_REF_N));
  int64_t next[4] = {begin / (positions / images), 0, 0, 0}; /* image, and position among those of the phase */
  for (int64_t axis = 2, at = begin; axis >= 0; at /= count[axis--])
    next[1 + axis] = at % count[axis];
  for (int64_t m = 0; m < tile->rows; m++) {
    w->image[m] = next[0] * w->source->step[TS_N];
    w->out[m] = next[0] * result->step[TS_N];
    for (int axis = 0; axis < 3; axis++) {
      w->place[axis][m] = first[axis] + next[1 + axis] * r->phase[axis];
      w->out[m] += w->place[axis][m] * result->step[TS_D + axis];
    }
    int axis = 3;
    for (; axis > 0 && ++next[axis] == count[axis - 1]; axis--)
      next[axis] = 0;
    next[0] += axis == 0;
  }
  for (int64_t n = 0; n < tile->columns; n++) {
    const int64_t channel = w->first + n;
    w->channel[n] = ts_ref_channel(result, w->group * w->to + channel);
    w->weight[n] = w->is_bwd ? ts_ref_channel(&conv->w, channel) : (w->group * w->to + channel) * conv->w.step[TS_N];
  }
  return 1;
}

/* Gather `count` channels of the source from `channel` on, and their weights, behind the `filled` elements. */
static void gather(const ts_ref_window *w, ts_ref_tile *tile, const void *source, const void *filter, const int64_t *at,
                   int64_t tap, int64_t channel, int64_t count, int64_t filled) {
  const ts_view *view = w->source;
  int64_t lies[TS_REF_Q];
  double *a = tile->a + filled;
  for (int64_t i = 0; i < count; i++)
    lies[i] = ts_ref_channel(view, w->group * w->from + channel + i);
  const int is_row = lies[count - 1] - lies[0] == count - 1;
  if (count > SHORT_ROW && (is_row || view->step[TS_C] <= view->step[TS_W]))
    for (int64_t m = 0; m < tile->rows; m++, a += TS_REF_Q) {
      if (at[m] < 0)
        memset(a, 0, (size_t)count * sizeof *a);
      else if (is_row)
        ts_ref_read(view->dtype, source, at[m] + lies[0], 1, count, a, 1);
      else
        ts_ref_gather(view->dtype, source, at[m], lies, count, a, 1);
    }
  else
    for (int64_t i = 0; i < count; i++)
      ts_ref_gather(view->dtype, source, lies[i], at, tile->rows, a + i, TS_REF_Q);
  const ts_view *weights = &w->conv->w;
  for (int64_t i = 0; i < count; i++) {
    const int64_t first =
        w->is_bwd ? (w->group * w->from + channel + i) * weights->step[TS_N] : ts_ref_channel(weights, channel + i);
    ts_ref_gather(weights->dtype, filter, tap + first, w->weight, tile->columns, tile->b + (filled + i) * TS_REF_N, 1);
  }
  for (int64_t m = 0; w->is_bwd && m < tile->rows; m++) {
    const uint64_t bits = (count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX) << filled;
    tile->exists[m] = (tile->exists[m] & ~bits) | (at[m] < 0 ? 0 : bits);
  }
}

static void flush(const ts_ref_window *w, ts_ref_tile *tile, int64_t count) {
  if (w->is_bwd)
    ts_ref_multiply_existing(tile, count);
  else
    ts_ref_multiply(tile, count);
}

/* All products of a tile. */
static void sum_tile(const ts_ref_window *w, ts_ref_tile *tile, const void *source, const void *filter) {
  const ts_view *weights = &w->conv->w;
  int64_t depth[TS_REF_M], height[TS_REF_M], width[TS_REF_M], filled = 0;
  for (int64_t d = 0; d < weights->size[TS_D]; d++) {
    if (is_between(w, 0, d)) continue;
    locate(w, 0, d, tile->rows, depth);
    for (int64_t h = 0; h < weights->size[TS_H]; h++) {
      if (is_between(w, 1, h)) continue;
      locate(w, 1, h, tile->rows, height);
      for (int64_t t = 0; t < weights->size[TS_W]; t++) {
        if (is_between(w, 2, t)) continue;
        locate(w, 2, t, tile->rows, width);
        for (int64_t m = 0; m < tile->rows; m++)
          width[m] = (depth[m] | height[m] | width[m]) < 0 ? -1 : w->image[m] + depth[m] + height[m] + width[m];
        const int64_t tap = d * weights->step[TS_D] + h * weights->step[TS_H] + t * weights->step[TS_W];
        for (int64_t channel = 0, count; channel < w->from; channel += count) {
          count = ts_ref_least(w->from - channel, TS_REF_Q - filled);
          gather(w, tile, source, filter, width, tap, channel, count, filled);
          filled += count;
          if (filled < TS_REF_Q) continue;
          flush(w, tile, filled);
          filled = 0;
        }
      }
    }
  }
  if (filled) flush(w, tile, filled);
}

void ts_ref_conv(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const ts_reference *r = (const void *)s;
  const ts_conv *conv = &r->conv;
  const ts_ref_end last = ts_ref_end_of(r, p);
  ts_ref_window w;
  ts_ref_tile tile;
  (void)scratch;
  w.conv = conv, w.is_bwd = conv->mode == TS_BWD;
  w.source = w.is_bwd ? &conv->y : &conv->x, w.result = w.is_bwd ? &conv->x : &conv->y;
  w.from = w.source->size[TS_C] * w.source->vector / conv->groups;
  w.to = w.result->size[TS_C] * w.result->vector / conv->groups;
  tile.is_whole = conv->acc == TS_INT32;
  for (int64_t item = begin; item < end; item++) {
    if (!place_tile(r, item, &w, &tile)) continue;
    sum_tile(&w, &tile, p[0], p[1]);
    for (int64_t m = 0; m < tile.rows; m++) {
      int64_t at[TS_REF_N];
      for (int64_t n = 0; n < tile.columns; n++)
        at[n] = w.out[m] + w.channel[n];
      ts_ref_finish(&last, tile.c + m * TS_REF_N, w.group * w.to + w.first, at, tile.columns);
    }
  }
}

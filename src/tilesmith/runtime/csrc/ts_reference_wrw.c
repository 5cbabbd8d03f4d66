/* Gradients of filters and biases: sums over the pixels of all images. */
#include "ts_reference_parts.h"

/* Pixels of an image in order, and where each one lies in the gradient of y and in x. */
typedef struct pixels {
  int64_t next[4]; /* image, depth, row, column */
  int64_t y[TS_REF_Q];
  int64_t image[TS_REF_Q];
  int64_t place[3][TS_REF_Q]; /* in x, of the first tap */
} pixels;

static void take_pixels(const ts_conv *conv, pixels *q, int64_t count) {
  const ts_view *y = &conv->y;
  for (int64_t i = 0; i < count; i++) {
    q->image[i] = q->next[0] * conv->x.step[TS_N];
    q->y[i] = q->next[0] * y->step[TS_N];
    for (int axis = 0; axis < 3; axis++) {
      q->place[axis][i] = q->next[1 + axis] * conv->stride[axis] - conv->low[axis];
      q->y[i] += q->next[1 + axis] * y->step[TS_D + axis];
    }
    int axis = 3;
    for (; axis > 0 && ++q->next[axis] == y->size[TS_D + axis - 1]; axis--)
      q->next[axis] = 0;
    q->next[0] += axis == 0;
  }
}

/* Where the elements of x lie that a tap meets; zeros of the padding are -1. */
static void locate(const ts_conv *conv, const pixels *q, const int64_t moved[3], int64_t count, int64_t *at) {
  const ts_view *x = &conv->x;
  for (int64_t i = 0; i < count; i++) {
    int64_t sum = q->image[i];
    int is_inside = 1;
    for (int axis = 0; axis < 3; axis++) {
      const int64_t place = q->place[axis][i] + moved[axis];
      is_inside &= place >= 0 && place < x->size[TS_D + axis];
      sum += place * x->step[TS_D + axis];
    }
    at[i] = is_inside ? sum : -1;
  }
}

/* A row is a channel and a tap of the filter, a column a channel of y. */
void ts_ref_wrw(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const ts_reference *r = (const void *)s;
  const ts_conv *conv = &r->conv;
  const ts_view *x = &conv->x, *y = &conv->y, *w = &conv->w;
  const ts_ref_end last = ts_ref_end_of(r, p);
  const int64_t from = x->size[TS_C] * x->vector / conv->groups, to = y->size[TS_C] * y->vector / conv->groups;
  const int64_t taps = w->size[TS_D] * w->size[TS_H] * w->size[TS_W], blocks = ts_ref_parts(to, TS_REF_N);
  const int64_t all = y->size[TS_N] * y->size[TS_D] * y->size[TS_H] * y->size[TS_W];
  ts_ref_tile tile;
  (void)scratch;
  tile.is_whole = 0;
  for (int64_t item = begin; item < end; item++) {
    const int64_t first = item % blocks * TS_REF_N, group = item / blocks / r->tiles;
    const int64_t row = item / blocks % r->tiles * TS_REF_M;
    int64_t moved[TS_REF_M][3], channel[TS_REF_M], out[TS_REF_M], columns[TS_REF_N], at[TS_REF_Q];
    ts_ref_begin(&tile, ts_ref_least(from * taps - row, TS_REF_M), ts_ref_least(to - first, TS_REF_N));
    for (int64_t m = 0; m < tile.rows; m++) {
      const int64_t c = (row + m) / taps;
      int64_t tap = (row + m) % taps;
      channel[m] = ts_ref_channel(x, group * from + c);
      out[m] = ts_ref_channel(w, c);
      for (int axis = 2; axis >= 0; axis--) {
        const int64_t size = w->size[TS_D + axis];
        moved[m][axis] = tap % size * conv->dilation[axis];
        out[m] += tap % size * w->step[TS_D + axis], tap /= size;
      }
    }
    for (int64_t n = 0; n < tile.columns; n++)
      columns[n] = ts_ref_channel(y, group * to + first + n);
    pixels q = {{0}, {0}, {0}, {{0}}};
    for (int64_t done = 0, count; done < all; done += count) {
      count = ts_ref_least(all - done, TS_REF_Q);
      take_pixels(conv, &q, count);
      for (int64_t m = 0; m < tile.rows; m++) {
        locate(conv, &q, moved[m], count, at);
        ts_ref_gather(x->dtype, p[1], channel[m], at, count, tile.a + m * TS_REF_Q, 1);
      }
      for (int64_t i = 0; i < count; i++)
        ts_ref_gather(y->dtype, p[0], q.y[i], columns, tile.columns, tile.b + i * TS_REF_N, 1);
      ts_ref_multiply(&tile, count);
    }
    for (int64_t m = 0; m < tile.rows; m++) {
      for (int64_t n = 0; n < tile.columns; n++)
        at[n] = (group * to + first + n) * w->step[TS_N] + out[m];
      ts_ref_finish(&last, tile.c + m * TS_REF_N, 0, at, tile.columns);
    }
  }
}

/* An item is a block of channels. */
void ts_ref_bgrad(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const ts_reference *r = (const void *)s;
  const ts_view *y = &r->conv.y;
  const ts_ref_end last = ts_ref_end_of(r, p);
  const int64_t channels = r->tiles, width = y->size[TS_W];
  const int64_t rows = r->is_blank ? 0 : y->size[TS_N] * y->size[TS_D] * y->size[TS_H];
  (void)scratch;
  for (int64_t item = begin; item < end; item++) {
    const int64_t first = item * TS_REF_N, count = ts_ref_least(channels - first, TS_REF_N);
    double sum[TS_REF_N] = {0}, part[TS_REF_Q];
    int64_t lies[TS_REF_N], at[TS_REF_N];
    for (int64_t n = 0; n < count; n++)
      lies[n] = ts_ref_channel(y, first + n), at[n] = first + n;
    for (int64_t row = 0; row < rows; row++) {
      const int64_t h = row % y->size[TS_H], d = row / y->size[TS_H] % y->size[TS_D];
      const int64_t base = row / y->size[TS_H] / y->size[TS_D] * y->step[TS_N] + d * y->step[TS_D] + h * y->step[TS_H];
      if (y->step[TS_C] <= y->step[TS_W] || y->vector > 1)
        for (int64_t t = 0; t < width; t++) {
          ts_ref_gather(y->dtype, p[0], base + t * y->step[TS_W], lies, count, part, 1);
          for (int64_t n = 0; n < count; n++)
            sum[n] += part[n];
        }
      else
        for (int64_t n = 0; n < count; n++)
          for (int64_t t = 0, length; t < width; t += length) {
            length = ts_ref_least(width - t, TS_REF_Q);
            ts_ref_read(y->dtype, p[0], base + lies[n] + t * y->step[TS_W], y->step[TS_W], length, part, 1);
            for (int64_t i = 0; i < length; i++)
              sum[n] += part[i];
          }
    }
    ts_ref_finish(&last, sum, 0, at, count);
  }
}

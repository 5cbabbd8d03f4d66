/* Other names of one problem: the orders of axes that tensors with axes of size 1 have at once. The rules, and the
 * order in which the names are looked up, are those of problems/spellings.py. */
#include "ts_check.h"

#include <string.h>

typedef struct order {
  int axes[TS_AXES];
} order;

/* Channels first or last, of the spatial axes that the problem has. */
static order usual(int dims, int is_last) {
  order found = {{TS_N}};
  int at = 1;
  if (!is_last) found.axes[at++] = TS_C;
  for (int axis = TS_AXES - dims; axis < TS_AXES; axis++)
    found.axes[at++] = axis;
  if (is_last) found.axes[at] = TS_C;
  return found;
}

/* Whether the axes that have more than one element lie in this order, without overlaps. */
static int follows(const ts_view *view, const order *wanted) {
  int64_t inner = 1;
  for (int i = view->rank - 1; i >= 0; i--) {
    const int64_t size = view->size[wanted->axes[i]], step = view->step[wanted->axes[i]];
    if (size == 1) continue;
    if (step < inner) return 0;
    inner = ts_times(step, size);
  }
  return 1;
}

/* The order in which the axes lie, unit axes in their place among all of channels first. */
static order own_order(const ts_view *view) {
  order found = usual(view->rank - 2, 0);
  int moving[TS_AXES], count = 0;
  for (int i = 0; i < view->rank; i++) {
    const int axis = found.axes[i];
    if (view->size[axis] == 1) continue;
    int at = count++;
    for (; at > 0 && view->step[moving[at - 1]] < view->step[axis]; at--)
      moving[at] = moving[at - 1];
    moving[at] = axis;
  }
  for (int i = 0, at = 0; i < view->rank; i++)
    if (view->size[found.axes[i]] != 1) found.axes[i] = moving[at++];
  return found;
}

/* How eager calls once named arrays: a dense one as its axes came, any other by its strides. */
static order earlier_order(const ts_view *view) {
  const order plain = usual(view->rank - 2, 0), own = own_order(view);
  return follows(view, &plain) || !follows(view, &own) ? plain : own;
}

static ts_status respell(ts_view *view, const order *wanted, ts_error *error) {
  int64_t steps[TS_AXES] = {0};
  for (int i = 0; i < view->rank; i++) {
    const int axis = view->order[i] = wanted->axes[i];
    steps[axis] = view->step[axis] ? view->step[axis] : 1;
  }
  return ts_view_settle(view, steps, error);
}

/* The key of the canonical problem in these orders of x, w and y; an empty text if its tensors do not have them. */
static ts_status spell(const ts_conv *conv, const order wanted[3], char key[TS_KEY_ROOM], ts_error *error) {
  *key = 0;
  if (!follows(&conv->x, wanted) || !follows(&conv->w, wanted + 1) || !follows(&conv->y, wanted + 2)) return TS_OK;
  ts_conv other = *conv;
  CHECK(respell(&other.x, wanted, error));
  CHECK(respell(&other.w, wanted + 1, error));
  CHECK(respell(&other.y, wanted + 2, error));
  CHECK(ts_conv_canonical(&other, error));
  ts_conv_key(&other, key, TS_KEY_ROOM);
  return TS_OK;
}

ts_status ts_conv_spelling(const ts_conv *conv, uint32_t index, char key[TS_KEY_ROOM], ts_error *error) {
  if (index == 0) {
    ts_conv_key(conv, key, TS_KEY_ROOM);
    return TS_OK;
  }
  char found[5][TS_KEY_ROOM];
  uint32_t count = 1;
  ts_conv_key(conv, found[0], TS_KEY_ROOM);
  const int is_plain = conv->x.vector == 1 && conv->w.vector == 1 && conv->y.vector == 1;
  if (is_plain && !conv->is_empty) {
    const order last = usual(conv->dims, 1), first = usual(conv->dims, 0);
    const order x = earlier_order(&conv->x), w = earlier_order(&conv->w), y = earlier_order(&conv->y);
    const int is_bwd = conv->mode == TS_BWD; /* the result lay as the operand did */
    const order wanted[4][3] = {
        {last, last, last}, {first, first, first}, {x, w, y}, {is_bwd ? y : x, w, is_bwd ? y : x}};
    for (int i = 0; i < 4; i++) {
      CHECK(spell(conv, wanted[i], found[count], error));
      int is_new = found[count][0] != 0;
      for (uint32_t other = 0; other < count; other++)
        is_new &= strcmp(found[other], found[count]) != 0;
      count += (uint32_t)is_new;
    }
  }
  strcpy(key, index < count ? found[index] : "");
  return TS_OK;
}

"""C text of the reference kernels: each problem as a small matrix product with operands gathered element by element.

One item is a tile of ``M`` result positions by ``N`` result channels. For each chunk of at most ``Q`` elements of the
reduction, ``a[m][q]`` and ``b[q][n]`` are gathered (and converted) into scratch, and ``multiply`` adds their product to
the tile. Sizes and strides are all run-time values, so one text serves every problem of its direction and dtypes.
"""

from __future__ import annotations

# Tile: positions, channels, and elements of the reduction gathered at a time.
M, N, Q = 32, 16, 64

MULTIPLY = """
typedef @ACC@ @SYM@_vec __attribute__((vector_size(@VB@)));

static void @SYM@_multiply(@ACC@ *restrict c, const @ACC@ *restrict a, const @ACC@ *restrict b, int64_t rows,
                           int64_t q) {
  for (int64_t m = 0; m < rows; m += @MR@, a += @MR@ * @Q@, c += @MR@ * @N@) {
    for (int64_t n = 0; n < @N@; n += @NR@) {
@LOAD@
      for (int64_t i = 0; i < q; i++) {
@FMA@
      }
@STORE@
    }
  }
}
"""

_CHANNEL = """
static inline int64_t @SYM@_channel(int64_t c, int64_t stride, int64_t vector) {
  return vector == 1 ? c * stride : c / vector * stride + c % vector;
}
"""

# Where the element of the source lies that tap ``t`` of the filter meets at position ``o`` of the result, or -1.
LOCATE = {
    "fwd": """
static inline int64_t @SYM@_locate(int64_t o, int64_t t, int64_t s, int64_t p, int64_t d, int64_t size) {
  const int64_t i = o * s - p + t * d;
  return i >= 0 && i < size ? i : -1;
}
""",
    "bwd": """
static inline int64_t @SYM@_locate(int64_t o, int64_t t, int64_t s, int64_t p, int64_t d, int64_t size) {
  const int64_t v = o + p - t * d, i = v < 0 ? -1 : s == 1 ? v : v / s;
  return i < size ? i : -1; /* the caller has seen that s divides v */
}
""",
}

# A scaled result is a double until it is stored. For int8, adding 1.5 * 2^52 rounds it to nearest even.
SATURATE = """\
        v = v != v ? 0.0 : v < -128.0 ? -128.0 : v > 127.0 ? 127.0 : v;
        v = (v + 6755399441055744.0) - 6755399441055744.0;"""

# fwd and bwd. A group has ``on`` result channels and ``rn`` source channels.
# For bwd, a tile holds positions of one phase (one remainder by the stride), which all meet the same taps.
CONV = (
    _CHANNEL
    + """
void @SYM@(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const @SYM@_sizes *g = (const void *)s;
  const void *src = p[0], *w = p[1];
@POINTERS@
  @ACC@ *a = scratch, *b = a + @M@ * @Q@, *c = b + @Q@ * @N@;
  int64_t *image = (int64_t *)(c + @M@ * @N@), *pd = image + @M@, *ph = pd + @M@, *pw = ph + @M@, *out = pw + @M@;
  int64_t *vd = out + @M@, *vh = vd + @M@, *off = vh + @M@, *so = off + @M@, *wo = so + @Q@, *wn = wo + @Q@;
@BWD_SCRATCH@
  const int64_t blocks = (g->on + @N@ - 1) / @N@;
  for (int64_t item = begin; item < end; item++) {
    const int64_t block = item % blocks, group = item / blocks % g->groups, n0 = block * @N@;
    int64_t tile = item / blocks / g->groups;
    const int64_t phase = tile / g->tiles;
    tile %= g->tiles;
    const int64_t fw0 = phase % g->ew, fh0 = phase / g->ew % g->eh, fd0 = phase / g->ew / g->eh;
    const int64_t cd = (g->od - fd0 + g->ed - 1) / g->ed, ch = (g->oh - fh0 + g->eh - 1) / g->eh;
    const int64_t cw = (g->ow - fw0 + g->ew - 1) / g->ew, left = g->n * cd * ch * cw - tile * @M@;
    if (left <= 0)
      continue;
    const int64_t rows = left < @M@ ? left : @M@, cols = g->on - n0 < @N@ ? g->on - n0 : @N@;
    for (int64_t m = 0; m < rows; m++) {
      int64_t at = tile * @M@ + m;
      pw[m] = fw0 + at % cw * g->ew, at /= cw;
      ph[m] = fh0 + at % ch * g->eh, at /= ch;
      pd[m] = fd0 + at % cd * g->ed, at /= cd;
      image[m] = at * g->src0;
      out[m] = at * g->out0 + pd[m] * g->out2 + ph[m] * g->out3 + pw[m] * g->out4;
    }
    for (int64_t n = 0; n < @N@; n++)
      wn[n] = @W_RESULT@;
    for (int64_t i = 0; i < @M@ * @N@; i++)
      c[i] = 0;
    int64_t q = 0;
    for (int64_t d = 0; d < g->fd; d++) {
@SKIP_D@
      for (int64_t m = 0; m < rows; m++)
        vd[m] = @SYM@_locate(pd[m], d, g->sd, g->pd, g->dd, g->id);
      for (int64_t h = 0; h < g->fh; h++) {
@SKIP_H@
        for (int64_t m = 0; m < rows; m++)
          vh[m] = @SYM@_locate(ph[m], h, g->sh, g->ph, g->dh, g->ih);
        for (int64_t t = 0; t < g->fw; t++) {
@SKIP_W@
          const int64_t tap = d * g->w2 + h * g->w3 + t * g->w4;
          for (int64_t m = 0; m < rows; m++) {
            const int64_t vw = @SYM@_locate(pw[m], t, g->sw, g->pw, g->dw, g->iw);
            const int inside = (vd[m] | vh[m] | vw) >= 0;
            off[m] = inside ? image[m] + vd[m] * g->src2 + vh[m] * g->src3 + vw * g->src4 : -1;
          }
          for (int64_t r0 = 0, len; r0 < g->rn; r0 += len) {
            len = g->rn - r0 < @Q@ - q ? g->rn - r0 : @Q@ - q;
            for (int64_t i = 0; i < len; i++) {
              so[i] = @SYM@_channel(group * g->rn + r0 + i, g->src1, g->srcv);
              wo[i] = tap + @W_SOURCE@;
            }
            if (g->src1 <= g->src4) {
              for (int64_t m = 0; m < rows; m++)
                for (int64_t i = 0; i < len; i++)
                  a[m * @Q@ + q + i] = off[m] < 0 ? 0 : @SYM@_load_@SRC@(src, off[m] + so[i]);
            } else {
              for (int64_t i = 0; i < len; i++)
                for (int64_t m = 0; m < rows; m++)
                  a[m * @Q@ + q + i] = off[m] < 0 ? 0 : @SYM@_load_@SRC@(src, off[m] + so[i]);
            }
            for (int64_t i = 0; i < len; i++)
              for (int64_t n = 0; n < @N@; n++)
                b[(q + i) * @N@ + n] = n < cols ? @SYM@_load_@W@(w, wo[i] + wn[n]) : 0;
@BWD_EXISTS@
            q += len;
            if (q == @Q@) {
              @FLUSH@
              q = 0;
            }
          }
        }
      }
    }
    @FLUSH@
    for (int64_t m = 0; m < rows; m++)
      for (int64_t n = 0; n < cols; n++) {
        const int64_t channel = group * g->on + n0 + n, at = out[m] + @SYM@_channel(channel, g->out1, g->outv);
        @VALUE@ v = @SIGNED@c[m * @N@ + n];@SCALE@
@EPILOGUE@
        @SYM@_store_@OUT@(result, at, v);
      }
  }
}
"""
)

# In bwd only products that exist count: where an operand is missing its zero may meet Inf or NaN in the filter.
# Chunks with such a filter element are multiplied one product at a time, the missing ones left out.
BWD = {
    "@BWD_SCRATCH@": "  uint8_t *exists = (uint8_t *)(wn + @N@);\n  int wild = 0;",
    "@BWD_EXISTS@": """\
            for (int64_t m = 0; m < rows; m++)
              for (int64_t i = 0; i < len; i++)
                exists[m * @Q@ + q + i] = off[m] >= 0;
            for (int64_t i = q * @N@; i < (q + len) * @N@; i++)
              wild |= !(b[i] - b[i] == 0);""",
    "@FLUSH@": "@SYM@_multiply_existing(c, a, b, exists, rows, q, wild), wild = 0;",
}

MULTIPLY_EXISTING = """
static void @SYM@_multiply_existing(@ACC@ *restrict c, const @ACC@ *restrict a, const @ACC@ *restrict b,
                                    const uint8_t *restrict exists, int64_t rows, int64_t q, int wild) {
  if (!wild) {
    @SYM@_multiply(c, a, b, rows, q);
    return;
  }
  for (int64_t m = 0; m < rows; m++)
    for (int64_t i = 0; i < q; i++)
      if (exists[m * @Q@ + i])
        for (int64_t n = 0; n < @N@; n++)
          c[m * @N@ + n] += a[m * @Q@ + i] * b[i * @N@ + n];
}
"""

# wrw: positions are (channel, tap) of the filter, the reduction runs over the output's pixels; zero padding takes part.
WRW = (
    _CHANNEL
    + """
void @SYM@(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const @SYM@_sizes *g = (const void *)s;
  const void *dy = p[0], *x = p[1];
  void *result = p[2];
@POINTERS@
  @ACC@ *a = scratch, *b = a + @M@ * @Q@, *c = b + @Q@ * @N@;
  int64_t *td = (int64_t *)(c + @M@ * @N@), *th = td + @M@, *tw = th + @M@, *xc = tw + @M@, *out = xc + @M@;
  int64_t *qd = out + @M@, *qh = qd + @Q@, *qw = qh + @Q@, *qn = qw + @Q@, *qy = qn + @Q@, *kn = qy + @Q@;
  const int64_t taps = g->fd * g->fh * g->fw, pixels = g->n * g->od * g->oh * g->ow;
  const int64_t blocks = (g->kn + @N@ - 1) / @N@, tiles = (g->cn * taps + @M@ - 1) / @M@;
  for (int64_t item = begin; item < end; item++) {
    const int64_t n0 = item % blocks * @N@, tile = item / blocks % tiles, group = item / blocks / tiles;
    const int64_t left = g->cn * taps - tile * @M@, rows = left < @M@ ? left : @M@;
    const int64_t cols = g->kn - n0 < @N@ ? g->kn - n0 : @N@;
    for (int64_t m = 0; m < rows; m++) {
      int64_t at = tile * @M@ + m;
      const int64_t t = at % g->fw, h = at / g->fw % g->fh, d = at / g->fw / g->fh % g->fd, channel = at / taps;
      td[m] = d * g->dd - g->pd, th[m] = h * g->dh - g->ph, tw[m] = t * g->dw - g->pw;
      xc[m] = @SYM@_channel(group * g->cn + channel, g->x1, g->xv);
      out[m] = @SYM@_channel(channel, g->w1, g->wv) + d * g->w2 + h * g->w3 + t * g->w4;
    }
    for (int64_t n = 0; n < @N@; n++)
      kn[n] = @SYM@_channel(group * g->kn + n0 + (n < cols ? n : 0), g->y1, g->yv);
    for (int64_t i = 0; i < @M@ * @N@; i++)
      c[i] = 0;
    int64_t ow = 0, oh = 0, od = 0, image = 0;
    for (int64_t first = 0; first < pixels; first += @Q@) {
      const int64_t q = pixels - first < @Q@ ? pixels - first : @Q@;
      for (int64_t i = 0; i < q; i++) {
        qd[i] = od * g->sd, qh[i] = oh * g->sh, qw[i] = ow * g->sw, qn[i] = image * g->x0;
        qy[i] = image * g->y0 + od * g->y2 + oh * g->y3 + ow * g->y4;
        if (++ow == g->ow) {
          ow = 0;
          if (++oh == g->oh) {
            oh = 0;
            if (++od == g->od)
              od = 0, image++;
          }
        }
      }
      for (int64_t m = 0; m < rows; m++)
        for (int64_t i = 0; i < q; i++) {
          const int64_t id = qd[i] + td[m], ih = qh[i] + th[m], iw = qw[i] + tw[m];
          const int inside = (id >= 0) & (id < g->id) & (ih >= 0) & (ih < g->ih) & (iw >= 0) & (iw < g->iw);
          a[m * @Q@ + i] = inside ? @SYM@_load_@X@(x, qn[i] + xc[m] + id * g->x2 + ih * g->x3 + iw * g->x4) : 0;
        }
      for (int64_t i = 0; i < q; i++)
        for (int64_t n = 0; n < @N@; n++)
          b[i * @N@ + n] = n < cols ? @SYM@_load_@Y@(dy, qy[i] + kn[n]) : 0;
      @SYM@_multiply(c, a, b, rows, q);
    }
    for (int64_t m = 0; m < rows; m++)
      for (int64_t n = 0; n < cols; n++)
        @SYM@_store_@W@(result, (group * g->kn + n0 + n) * g->w0 + out[m], c[m * @N@ + n]);
  }
}
"""
)

# bgrad: one item is a block of channels; the sum runs along whichever axis is contiguous.
BGRAD = """
void @SYM@(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const @SYM@_sizes *g = (const void *)s;
  const void *dy = p[0];
  void *result = p[1];
@POINTERS@
  (void)scratch;
  for (int64_t item = begin; item < end; item++) {
    const int64_t k0 = item * @N@, cols = g->k - k0 < @N@ ? g->k - k0 : @N@;
    @ACC@ sum[@N@] = {0};
    int64_t channel[@N@];
    for (int64_t n = 0; n < cols; n++)
      channel[n] = g->yv == 1 ? (k0 + n) * g->y1 : (k0 + n) / g->yv * g->y1 + (k0 + n) % g->yv;
    for (int64_t image = 0; image < g->n; image++)
      for (int64_t d = 0; d < g->od; d++)
        for (int64_t h = 0; h < g->oh; h++) {
          const int64_t row = image * g->y0 + d * g->y2 + h * g->y3;
          if (g->y1 <= g->y4) {
            for (int64_t t = 0; t < g->ow; t++)
              for (int64_t n = 0; n < cols; n++)
                sum[n] += @SYM@_load_@Y@(dy, row + channel[n] + t * g->y4);
          } else {
            for (int64_t n = 0; n < cols; n++)
              for (int64_t t = 0; t < g->ow; t++)
                sum[n] += @SYM@_load_@Y@(dy, row + channel[n] + t * g->y4);
          }
        }
    for (int64_t n = 0; n < cols; n++)
      @SYM@_store_@W@(result, k0 + n, sum[n]);
  }
}
"""

GEMM = """
void @SYM@(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const @SYM@_sizes *g = (const void *)s;
  const void *pa = p[0], *pb = p[1];
@POINTERS@
  @ACC@ *a = scratch, *b = a + @M@ * @Q@, *c = b + @Q@ * @N@;
  const int64_t blocks = (g->n + @N@ - 1) / @N@, tiles = (g->m + @M@ - 1) / @M@;
  for (int64_t item = begin; item < end; item++) {
    const int64_t n0 = item % blocks * @N@, batch = item / blocks / tiles;
    int64_t m0 = item / blocks % tiles * @M@, rows = g->m - m0 < @M@ ? g->m - m0 : @M@, depth = g->k;
    const int64_t cols = g->n - n0 < @N@ ? g->n - n0 : @N@;@GROUP@
    for (int64_t i = 0; i < @M@ * @N@; i++)
      c[i] = 0;
    for (int64_t k0 = 0; k0 < depth; k0 += @Q@) {
      const int64_t q = depth - k0 < @Q@ ? depth - k0 : @Q@;
      const int64_t a0 = @FIRST@ + m0 * g->a1 + k0 * g->a2, b0 = batch * g->b0 + k0 * g->b1 + n0 * g->b2;
      if (g->a2 <= g->a1) {
        for (int64_t m = 0; m < rows; m++)
          for (int64_t i = 0; i < q; i++)
            a[m * @Q@ + i] = @SYM@_load_@A@(pa, a0 + m * g->a1 + i * g->a2)@A_FACTOR@;
      } else {
        for (int64_t i = 0; i < q; i++)
          for (int64_t m = 0; m < rows; m++)
            a[m * @Q@ + i] = @SYM@_load_@A@(pa, a0 + m * g->a1 + i * g->a2)@A_FACTOR@;
      }
      for (int64_t i = 0; i < q; i++)
        for (int64_t n = 0; n < @N@; n++)
          b[i * @N@ + n] = n < cols ? @SYM@_load_@B@(pb, b0 + i * g->b1 + n * g->b2)@B_FACTOR@ : 0;
      @SYM@_multiply(c, a, b, rows, q);
    }
    for (int64_t m = 0; m < rows; m++)
      for (int64_t n = 0; n < cols; n++) {
        const int64_t channel = n0 + n, at = @FIRST_OUT@ + (m0 + m) * g->c1 + channel * g->c2;
        @VALUE@ v = @SIGNED@c[m * @N@ + n];
        v *= (@VALUE@)g->alpha;@SCALE@
        if (g->beta != 0)
          v += (@VALUE@)g->beta * @SYM@_load_@OUT@(result, at);
@EPILOGUE@
        @SYM@_store_@OUT@(result, at, v);
      }
  }
}
"""

# The factors of the operands: each element counts times that of its block.
FACTORS = {
    "@A_FACTOR@": " * ((const float *)p[2])[(m0 + m) / g->am * g->ar + (k0 + i) / @SCALE_K@ * g->ak]",
    "@B_FACTOR@": " * ((const float *)p[3])[(n0 + n) / g->bm * g->br + (k0 + i) / @SCALE_K@ * g->bk]",
}

# Tiles of a group of rows: ``batch`` counts the groups, and behind the last one the rows of none, which are 0.
ROWS_OF_GROUP = """
    int64_t first = 0, last = 0;
    for (int64_t i = 0; i <= batch; i++) {
      const int64_t group_end = i < g->groups ? ((const int32_t *)p[2])[i] : g->m;
      first = last;
      last = group_end > g->m ? g->m : group_end > last ? group_end : last;
    }
    m0 += first;
    rows = last - m0 < @M@ ? last - m0 : @M@;
    if (rows <= 0)
      continue;
    if (batch == g->groups)
      depth = 0;"""

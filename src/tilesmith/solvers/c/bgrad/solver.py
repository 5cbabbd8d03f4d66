"""Bias gradient: the sum of ``dy`` over everything but channels, for channels-last tensors and for contiguous rows."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import MARK, make_source
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Space
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    Unranked,
    remembered,
    values_of,
)
from tilesmith.targets.target import CpuTarget

_C_TYPES = {"fp32": "ts_f32", "bf16": "ts_u16", "fp16": "ts_u16"}
# Terms that one fp32 sum takes before it is folded: keeps the rounding of long sums small.
_RUN = 256
# Pixels of one image below which rows are joined even if that leaves one row to share between threads.
_JOINED = 4096

AXES = (
    Axis("vectors", (1, 2, 4, 8), "Vectors of channels that are summed at once."),
    Axis("split_n", (1, 2, 4, 8, 16, 32, 64), "Shares of the rows, whose sums a second kernel adds."),
)


class BgradSolver(Unranked):
    """``bgrad`` of a tensor whose channels, or whose rows, are contiguous."""

    name = "c_bgrad"
    revision = 1
    features = USUAL | WINDOW | {"bgrad", "groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if problem.direction != "bgrad":
            return Rejected(reasons.DIRECTION, problem.direction)
        if problem.acc_dtype != "fp32" or problem.y.dtype not in _C_TYPES:
            return Rejected(reasons.DTYPE, f"{problem.y.dtype} {problem.acc_dtype}")
        if not (problem.y.channels_last or _in_rows(problem.y)):
            return Rejected(reasons.LAYOUT, "neither channels nor rows are contiguous")
        return Accepted()

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        assert isinstance(problem, ConvGeometry)
        rows = _rows(_joined(problem))
        return SearchSpace(
            values_of(AXES),
            lambda config: config["split_n"] <= rows and config["vectors"] + 2 <= target.vector_registers,
        )

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        assert isinstance(problem, ConvGeometry)
        splits = 1
        while splits < (8 * target.cores if target.cores > 1 else 1) and splits * 2 <= min(64, _rows(_joined(problem))):
            splits *= 2
        vectors = ceil(problem.k / target.lanes(4))
        nv = 8 if vectors >= 8 or not problem.y.channels_last else 4 if vectors >= 4 else 2
        return Config((("vectors", min(nv, 8)), ("split_n", splits)))

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        """Bytes from memory at about 8 a cycle; narrow blocks visit each row more often."""
        assert isinstance(problem, ConvGeometry)
        y = problem.y
        total = y.shape[0] * y.shape[1] * y.shape[2] * y.shape[3] * y.shape[4]
        vectors = ceil(problem.k / target.lanes(4))
        visits = ceil(vectors / config["vectors"]) if y.channels_last else 1
        busy = min(target.cores, config["split_n"])
        return (total * 4 / 32e9 * (1 + 0.02 * visits) + config["split_n"] * problem.k * 1e-9) / busy + 2e-6

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        assert isinstance(problem, ConvGeometry)
        problem = _joined(problem)
        prelude, y, splits = c_prelude(target), problem.y, config["split_n"]
        text = _last_body(problem, config["vectors"]) if y.channels_last else _rows_body(problem, config["vectors"])
        tile = "x".join(str(value) for _, value in config.values)
        run = make_source("c", "bgrad", y.dtype, tile, target.arch, prelude, text)
        fold = make_source("c", "bgradsum", y.dtype, tile, target.arch, prelude, _fold_body(problem))
        sums = Pointer(Space.WORKSPACE)
        return Draft(
            sources=(run, fold),
            run=(
                Launch(
                    0, run.symbol, (splits, 1, 1),
                    (Pointer(Space.SLOT, 0), sums, Integer(_rows(problem)), Integer(splits)),
                ),
                Launch(1, fold.symbol, (1, 1, 1), (sums, Pointer(Space.SLOT, 1), Integer(splits))),
            ),
            workspace_bytes=splits * _pitch(problem.k) * 4,
        )  # fmt: skip


def _in_rows(view: TensorView) -> bool:
    return view.vector == 1 and (view.strides[4] == 1 or view.shape[4] == 1)


def _joined(problem: ConvGeometry) -> ConvGeometry:
    """The problem with short contiguous rows of one channel joined to a long one."""
    view = problem.y
    n, k, d, h, w = view.shape
    dense = view.strides[2:] == (h * w, w, 1) or (d == 1 and (h == 1 or view.strides[3] == w))
    if view.channels_last or not _in_rows(view) or not dense or (n == 1 and h * w > _JOINED):
        return problem
    return replace(problem, y=replace(view, shape=(n, k, 1, 1, d * h * w), strides=(*view.strides[:2], 0, 0, 1)))


def _rows(problem: ConvGeometry) -> int:
    """Rows of all images."""
    n, _, d, h, _ = problem.y.shape
    return n * d * h


def _pitch(k: int) -> int:
    """Sums of one split, with room for whole vectors of any target."""
    return -(-k // 16) * 16


def _head(problem: ConvGeometry) -> list[str]:
    y, (_, _, d, h, _) = problem.y, problem.y.shape
    pitch = _pitch(problem.k)
    return [
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)scratch;",
        f"  const {_C_TYPES[y.dtype]} *y = p[0];",
        "  for (ts_i64 item = begin; item < end; item++) {",
        f"    float *sum = (float *)p[1] + item * {pitch};",
        f"    __builtin_memset(sum, 0, {pitch * 4});",
        "    for (ts_i64 row = s[0] * item / s[1]; row < s[0] * (item + 1) / s[1]; row++) {",
        f"      const {_C_TYPES[y.dtype]} *at = y + row / {d * h} * {y.strides[0]} + row / {h} % {d} * {y.strides[2]}"
        f" + row % {h} * {y.strides[3]};",
    ]


def _last_body(problem: ConvGeometry, nv: int) -> str:
    """Channels in lanes: the pixels of a row are added in runs, a run to the sums."""
    y, width = problem.y, problem.y.shape[4]
    step, tail = y.strides[4], f"ts_load_n_{y.dtype}(e + c, (int)({problem.k} - c))"
    o = [
        *_head(problem),
        f"      for (ts_i64 from = 0; from < {width}; from += {_RUN}) {{",
        f"        ts_i64 to = from + {_RUN} < {width} ? from + {_RUN} : {width}, c = 0;",
        f"        for (; c + {nv} * TS_LANES <= {problem.k}; c += {nv} * TS_LANES) {{",
        f"          const {_C_TYPES[y.dtype]} *e = at + from * {step} + c;",
        *(f"          ts_vf a{v} = {{0}};" for v in range(nv)),
        f"          for (ts_i64 j = from; j < to; j++, e += {step}) {{",
        *(f"            a{v} += ts_load_{y.dtype}(e + {v} * TS_LANES);" for v in range(nv)),
        "          }",
        *(
            f"          ts_store_fp32(sum + c + {v} * TS_LANES, ts_load_fp32(sum + c + {v} * TS_LANES) + a{v});"
            for v in range(nv)
        ),
        "        }",
        f"        for (; c < {problem.k}; c += TS_LANES) {{",
        f"          const {_C_TYPES[y.dtype]} *e = at + from * {step};",
        "          ts_vf a = {0};",
        f"          if (c + TS_LANES <= {problem.k})",
        f"            for (ts_i64 j = from; j < to; j++, e += {step}) a += ts_load_{y.dtype}(e + c);",
        "          else",
        f"            for (ts_i64 j = from; j < to; j++, e += {step}) a += {tail};",
        "          ts_store_fp32(sum + c, ts_load_fp32(sum + c) + a);",
        "        }",
        "      }",
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(o) + "\n"


def _rows_body(problem: ConvGeometry, nv: int) -> str:
    """Pixels in lanes: each channel's row is summed, then its lanes."""
    y, width = problem.y, problem.y.shape[4]
    o = [
        *_head(problem),
        f"      for (ts_i64 c = 0; c < {problem.k}; c++) {{",
        f"        const {_C_TYPES[y.dtype]} *e = at + c * {y.strides[1]};",
        "        ts_i64 j = 0;",
        *(f"        ts_vf a{v} = {{0}};" for v in range(nv)),
        f"        for (; j + {nv} * TS_LANES <= {width}; j += {nv} * TS_LANES) {{",
        *(f"          a{v} += ts_load_{y.dtype}(e + j + {v} * TS_LANES);" for v in range(nv)),
        "        }",
        f"        for (; j + TS_LANES <= {width}; j += TS_LANES) a0 += ts_load_{y.dtype}(e + j);",
        f"        if (j < {width}) a0 += ts_load_n_{y.dtype}(e + j, (int)({width} - j));",
        *(f"        a0 += a{v};" for v in range(1, nv)),
        "        float lane[TS_LANES], all = 0.0f;",
        "        ts_store_fp32(lane, a0);",
        "        for (int l = 0; l < TS_LANES; l++) all += lane[l];",
        "        sum[c] += all;",
        "      }",
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(o) + "\n"


def _fold_body(problem: ConvGeometry) -> str:
    """Adds the splits. Pointers: sums, result."""
    dtype, pitch = problem.y.dtype, _pitch(problem.k)
    return "\n".join([
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)scratch, (void)begin, (void)end;",
        "  const float *sum = p[0];",
        f"  {_C_TYPES[dtype]} *b = p[1];",
        f"  for (ts_i64 c = 0; c < {problem.k}; c += TS_LANES) {{",
        "    ts_vf v = ts_load_fp32(sum + c);",
        f"    for (ts_i64 q = 1; q < s[0]; q++) v += ts_load_fp32(sum + q * {pitch} + c);",
        f"    if (c + TS_LANES <= {problem.k}) ts_store_{dtype}(b + c, v);",
        f"    else ts_store_n_{dtype}(b + c, v, (int)({problem.k} - c));",
        "  }",
        "}",
        "",
    ])  # fmt: skip

"""The second kernel of backward weights of depthwise convolutions: it adds up the sums of blocks."""

from __future__ import annotations

from math import prod
from pathlib import Path

from tilesmith.codegen.cuda.mma import TYPES, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Launch, Pointer, Source, Space
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.common.steps import filter_steps, tensor_steps
from tilesmith.targets.target import CudaTarget

_SUMMED = 32  # results of a block


def depthwise_sum(g: ConvGeometry, parts: int, family: str, tile: str, target: CudaTarget) -> tuple[Source, Launch]:
    """The kernel, and its launch behind another. It reads ``parts`` times the results in fp32 from the workspace, each
    part tap by tap, its channels side by side. Slots hold dy, x, dw, of which the first two are read again where a sum
    is no number."""
    results = prod(g.filter) * g.k
    arguments = (
        Argument("dy", "const Element *", Pointer(Space.SLOT, 0)),
        Argument("x", "const Element *", Pointer(Space.SLOT, 1)),
        Argument("partial", "const float *", Pointer(Space.WORKSPACE)),
        Argument("dw", "Out *", Pointer(Space.SLOT, 2)),
        *integers("int", channels=g.k, parts=parts, results=results),
        *integers("int", in_d=g.input[0], in_h=g.input[1], in_w=g.input[2]), *tensor_steps("in", g.x),
        *integers("int", out_d=g.output[0], out_h=g.output[1], out_w=g.output[2]), *tensor_steps("out", g.y),
        *integers("i64", pixels=g.n * prod(g.output)),
        *filter_steps(g.w),
    )  # fmt: skip
    numbers = {"R": g.filter[1], "S": g.filter[2], "MULTIPLIER": g.k // g.c}
    for axis, i in (("D", 0), ("H", 1), ("W", 2)):
        numbers |= {f"STRIDE_{axis}": g.stride[i], f"PAD_{axis}": g.padding[i], f"DILATION_{axis}": g.dilation[i]}
    header = Header(numbers, types={"Element": TYPES[g.x.dtype], "Out": TYPES[g.w.dtype]}, arguments=arguments)
    text = "namespace ts_mma {\n" + scoped(template(Path(__file__).parent, "depthwise_sum")) + "} // namespace ts_mma\n"
    source = unit(f"{family}sum", g.x.dtype, tile, target.arch, mma_prelude(), text, header)
    launch = Launch(1, source.symbol, (-(-results // _SUMMED), 1, 1), passed(arguments), (_SUMMED * 8, 1, 1),
                    programmatic=target.has_cluster)  # fmt: skip
    return source, launch

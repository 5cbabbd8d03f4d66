"""The kernel that folds batch norms into filters and biases on a GPU: many layers in one launch.

Where parameters are no constants, a compiled model folds its batch norms at each call. Inductor writes two kernels for
each layer, compiles them, and times them at the first call.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import torch

from tilesmith import env
from tilesmith.codegen.cuda.mma import TYPES, divisor, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, passed, template, unit
from tilesmith.dispatch.locations import open_cache, strict_cache, target_of
from tilesmith.errors import CompileError, TilesmithError
from tilesmith.plan.assemble import ALIGNMENT
from tilesmith.plan.records import Extent, Launch, Plan, Pointer, Slot, Source, Space
from tilesmith.plan.serial import Serial
from tilesmith.problems.geometry import has_gaps
from tilesmith.runtime.executable import Executable
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.plans import find_plan, keep_plan

_SOLVER = "folded_norms"  # as plans name it
_HERE = Path(__file__).parent
_THREADS, _LOADS, _VECTOR_BYTES = 256, 4, 16
_MOST_ELEMENTS = 2**31 - 2**20  # of a filter: a block may count beyond the last one
_AT_MOST = 30  # layers of a launch: a kernel takes 4 KB of parameters, and a plan's launch 256 of them
_log = logging.getLogger("tilesmith.compile")
_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Layer:
    """A layer, by the numbers that are constants of the kernel's text.

    Attributes:
        elements: Of the filter.
        channels: Of the result.
        each: Elements of the filter in a row, as they lie in memory, that have one channel.
        eps: Of the batch norm.
    """

    elements: int
    channels: int
    each: int
    eps: float


@dataclass(frozen=True)
class Norms:
    """Layers that one operator folds; all filters have one type, and so have all biases and all vectors of the norms.

    Attributes:
        layers: In the operator's order.
        filter: Type of the filters.
        norm: Of mean, variance, gamma and beta.
        bias: Of the biases; empty: there are none.
        result: Of the new filters and biases.
        affine: Whether there are gammas and betas.
    """

    layers: tuple[Layer, ...]
    filter: str
    norm: str
    bias: str
    result: str
    affine: bool

    @property
    def vector(self) -> int:
        """Elements of a filter that a thread moves at once."""
        return _VECTOR_BYTES // (4 if "fp32" in (self.filter, self.result) else 2)

    @property
    def block(self) -> int:
        """Elements of a filter that a block computes."""
        return self.vector * _LOADS * _THREADS

    @property
    def operands(self) -> tuple[tuple[str, str, str], ...]:
        """Name, type in the kernel, and dtype of what a layer reads and writes, in the order of the slots."""
        return (
            ("filter", "const Filter *", self.filter),
            *([("bias", "const Bias *", self.bias)] if self.bias else []),
            ("mean", "const Norm *", self.norm), ("variance", "const Norm *", self.norm),
            *([("gamma", "const Norm *", self.norm), ("beta", "const Norm *", self.norm)] if self.affine else []),
            ("filter_out", "Result *", self.result), ("bias_out", "Result *", self.result),
        )  # fmt: skip


def norms_of(
    filters: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], means: Sequence[torch.Tensor],
    variances: Sequence[torch.Tensor], gammas: Sequence[torch.Tensor], betas: Sequence[torch.Tensor],
    eps: Sequence[float], axes: Sequence[int], dtype: torch.dtype,
) -> Norms | None:  # fmt: skip
    """The layers of a call; None where the kernel cannot fold one: a type, a filter with gaps, too many elements."""
    kinds = [{each.dtype for each in kind} for kind in (filters, (*means, *variances, *gammas, *betas), biases)]
    if any(len(each) > 1 for each in kinds) or not {dtype}.union(*kinds) <= _NAMES.keys():
        return None
    lies = tuple([(w.shape, w.stride()) for w in filters])
    layers = _layers(lies, tuple([mean.shape[0] for mean in means]), tuple(eps), tuple(axes))
    filter_, norm, bias = (_NAMES[next(iter(each))] if each else "" for each in kinds)
    return None if layers is None else Norms(layers, filter_, norm, bias, _NAMES[dtype], bool(gammas))


@lru_cache(maxsize=64)  # each call asks anew
def _layers(
    lies: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], channels: tuple[int, ...], eps: tuple[float, ...],
    axes: tuple[int, ...],
) -> tuple[Layer, ...] | None:  # fmt: skip
    found = []
    for (shape, strides), count, epsilon, axis in zip(lies, channels, eps, axes, strict=True):
        elements = prod(shape)
        if has_gaps(shape, strides) or not 0 < elements < _MOST_ELEMENTS or shape[axis] != count:
            return None
        found.append(Layer(elements, count, strides[axis] if count > 1 else elements, float(epsilon)))
    return tuple(found)


def norms_source(norms: Norms, first: int, target: Target) -> tuple[Source, Launch]:
    """The kernel of up to 30 layers from ``first`` on, and its launch."""
    chosen = norms.layers[first : first + _AT_MOST]
    count = len(norms.operands)
    arguments = [
        Argument(f"{name}_{i}", kind, Pointer(Space.SLOT, (first + i) * count + place))
        for i in range(len(chosen))
        for place, (name, kind, _) in enumerate(norms.operands)
    ]
    lines, block = [], 0
    for i, layer in enumerate(chosen):
        given = {name: f"run.{name}_{i}" for name, _, _ in norms.operands}
        pointers = [given.get(name, "nullptr") for name in ("filter", "bias", "mean", "variance", "gamma", "beta")]
        said = [
            block, layer.elements, layer.channels, layer.each, *(f"{part}u" for part in divisor(layer.channels)),
            *(f"{part}u" for part in divisor(layer.each)), f"{layer.eps!r}f",
        ]  # fmt: skip
        value = ", ".join(map(str, (*pointers, given["filter_out"], given["bias_out"], *said)))
        block += -(-layer.elements // norms.block)
        last = i + 1 == len(chosen)
        lines.append(f"  {'' if last else f'if (block < {block}) '}return {{{value}}};")
    chooser = "\n".join(["TS_MMA_DEVICE Layer layer_of(const Run &run, int block) {", *lines, "}"])
    types = {"Filter": norms.filter, "Norm": norms.norm, "Bias": norms.bias or norms.norm, "Result": norms.result}
    numbers = {"THREADS": _THREADS, "LOADS": _LOADS, "VECTOR": norms.vector}
    header = Header(
        numbers, {"AFFINE": norms.affine, "BIASED": bool(norms.bias)},
        {name: TYPES[each] for name, each in types.items()}, arguments=tuple(arguments),
    )  # fmt: skip
    text = template(_HERE, "norms").replace("@LAYERS@", chooser)
    source = unit("foldednorms", norms.filter, f"{len(chosen)}", target.arch, mma_prelude(), text, header)
    size: Extent = (_THREADS, 1, 1)
    return source, Launch(first // _AT_MOST, source.symbol, (block, 1, 1), passed(arguments), size)


def norms_plan(norms: Norms, target: Target) -> tuple[list[Source], list[Launch], tuple[Slot, ...]]:
    """All kernels of the layers, their launches, and the tensors in the order that an ``Executable`` takes them."""
    made = [norms_source(norms, first, target) for first in range(0, len(norms.layers), _AT_MOST)]
    slots = []
    for i, layer in enumerate(norms.layers):
        for name, _, dtype in norms.operands:
            size = layer.elements if name.startswith("filter") else layer.channels
            nbytes = size * (4 if dtype == "fp32" else 2)
            slots.append(Slot(f"{name}_{i}", dtype, (size,), (1,), nbytes, name.endswith("_out")))
    return [source for source, _ in made], [launch for _, launch in made], tuple(slots)


@lru_cache(maxsize=64)
def norms_kernel(norms: Norms, device: str) -> Executable | None:
    """The kernels, from the cache or compiled; None where there is no compiler, or ``strict`` mode finds none."""
    strict = env.FIND_MODE.get() == "strict"
    try:
        target = target_of(None, None, device)
        sources, launches, slots = norms_plan(norms, target)
        problem = f"norms {' '.join(source.symbol for source in sources)}"  # its texts, by digest
        cache = strict_cache() if strict else open_cache()
        held = find_plan(cache, problem, _SOLVER, 0, "", target)
        if held is not None:
            return Executable(held.serial, held.artifacts)
        if strict:
            return None
        artifacts = _built(cache, sources, target)
        serial = Serial.of(_plan(problem, target, slots, launches, [each.digest for each in artifacts]))
        keep_plan(cache, serial, 0, target)
        return Executable(serial, artifacts)
    except TilesmithError as error:
        _log.info("batch norms are folded by PyTorch: %s", error)
        return None


def _built(cache: ArtifactCache, sources: Sequence[Source], target: Target) -> list[Artifact]:
    found = []
    for each in cache.get_or_build_many(sources, target):
        if isinstance(each, CompileError):
            raise each
        found.append(each)
    return found


def _plan(
    problem: str, target: Target, slots: tuple[Slot, ...], launches: Sequence[Launch], digests: Sequence[str]
) -> Plan:
    return Plan(
        problem=problem, target=target.name, solver=_SOLVER, config="", slots=slots, artifacts=tuple(digests),
        prepare=(), run=tuple(launches), packed_bytes=0, workspace_bytes=0, scratch_offset=0, scratch_stride=0,
        threads=1, alignment=ALIGNMENT["cuda"], family="cuda",
    )  # fmt: skip

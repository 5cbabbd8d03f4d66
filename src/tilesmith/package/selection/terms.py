"""The terms of a selection: element types, tiles, stages, modes, sizes. Each is parsed and printed here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilesmith.errors import ArgumentError, ProblemError
from tilesmith.package.selection.shape import KernelShape
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.flags import ACC_TYPES
from tilesmith.problems.dtypes import acc_dtype, dtype
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import CudaTarget

MODES = ("fwd", "bwd", "wrw", "bgrad", "deconv", "gemm")
ANY = "*"
_STAGES = re.compile(r"sm_?([0-9]{2,3})[af]?_([0-9]{1,2})")
_TILE = re.compile(r"([0-9]{1,4}|\*)x([0-9]{1,4}|\*)(?:x([0-9]{1,4}|\*))?")
_SIZE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,3}))? ?(B|KB|MB|GB|KiB|MiB|GiB)?")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class Trait:
    """Element types: of the input (``a``), of the filter (``b``), of the result, and of the sums; ``*``: any."""

    types: tuple[str, str, str, str]

    def __str__(self) -> str:
        given = list(self.types)
        while len(given) > 2 and given[-1] == ANY:
            given.pop()
        return given[0] if given[:1] * 2 == given else "/".join(given)

    def fits(self, signature: Signature) -> bool:
        return all(one in (ANY, own) for one, own in zip(self.types, types_of(signature), strict=True))


@dataclass(frozen=True)
class Tile:
    """The tile of a GPU kernel: ``block_m``, ``block_n``, ``block_k``; 0: any."""

    sizes: tuple[int, int, int]

    def __str__(self) -> str:
        shown = self.sizes if self.sizes[2] else self.sizes[:2]
        return "x".join(str(size or ANY) for size in shown)

    def fits(self, shape: KernelShape) -> bool:
        own = (shape.block_m, shape.block_n, shape.block_k)
        return all(size in (0, each) for size, each in zip(self.sizes, own, strict=True))


@dataclass(frozen=True)
class ArchStages:
    """GPU kernels with ``stages`` stages whose instructions the arch has: 80 for sm_80."""

    arch: int
    stages: int

    def __str__(self) -> str:
        return f"sm{self.arch}_{self.stages}"

    def fits(self, shape: KernelShape, target: CudaTarget) -> bool:
        here = target.cc_major * 10 + target.cc_minor
        return shape.stages == self.stages and shape.arch <= self.arch <= here


@dataclass(frozen=True)
class Shapes:
    """The tiles and stages that are let in; none: any."""

    tiles: tuple[Tile, ...] = ()
    arch_stages: tuple[ArchStages, ...] = ()

    def refuses(self, shape: KernelShape, target: CudaTarget) -> str:
        """Why a kernel is out; empty if it is in. A kernel without a tile, or without a ring, is not limited by it."""
        if shape.block_m and self.tiles and not any(tile.fits(shape) for tile in self.tiles):
            return f"tile {shape.tile} is not selected ({', '.join(map(str, self.tiles))})"
        stages = self.arch_stages
        if shape.stages and stages and not any(each.fits(shape, target) for each in stages):
            return f"arch_stages {shape.arch_stages} is not selected ({', '.join(map(str, stages))})"
        return ""


def parse_trait(text: str) -> Trait:
    """``fp16`` (input and filter), or up to four types ``input/filter/result/sums``; ``ArgumentError``."""
    parts = text.split("/")
    if len(parts) == 1:
        parts *= 2
    if len(parts) > 4:
        raise ArgumentError(f"trait {text!r} has {len(parts)} types; it is input, or input/filter/result/sums")
    try:
        names = [
            each if each == ANY else (acc_dtype if place == 3 else dtype)(ACC_TYPES.get(each, each)).name
            for place, each in enumerate(parts)
        ]
    except ProblemError as error:
        raise ArgumentError(f"trait {text!r}: {error}") from None
    a, b, result, sums = (*names, ANY, ANY)[:4]
    return Trait((a, b, result, sums))


def parse_tile(text: str) -> Tile:
    """``128x128`` or ``128x128x32``: ``block_m``, ``block_n`` and ``block_k``; ``*`` for any. ``ArgumentError``."""
    found = _TILE.fullmatch(text)
    if found is None or "0" in found.groups():
        raise ArgumentError(f"tile {text!r} is not block_m x block_n, such as 128x64, 128x64x32 or 128x*")
    m, n, k = (0 if part in (None, ANY) else int(part) for part in found.groups())
    return Tile((m, n, k))


def parse_arch_stages(text: str) -> ArchStages:
    """``sm80_3``: an arch from sm_80 on, and 1 stage or more. ``ArgumentError``."""
    found = _STAGES.fullmatch(text)
    if found is None or int(found[2]) == 0:
        raise ArgumentError(f"arch_stages {text!r} is not an arch and a number of stages, such as sm80_3")
    if int(found[1]) < 80:
        raise ArgumentError(f"arch_stages {text!r}: kernels are made for sm80 and newer")
    return ArchStages(int(found[1]), int(found[2]))


def parse_mode(text: str) -> str:
    """One of ``MODES``; ``ArgumentError``."""
    if text not in MODES:
        raise ArgumentError(f"mode {text!r} does not exist; known: {', '.join(MODES)}")
    return text


def parse_size(text: str) -> int:
    """Bytes: ``4000000``, ``4 MB``, ``1.5 MiB``; at least one. ``ArgumentError``."""
    found = _SIZE.fullmatch(text)
    nbytes = 0
    if found is not None:
        scale = _UNITS[found[3] or "B"]
        nbytes = int(found[1]) * scale + int(f"{found[2] or '':0<3}") * scale // 1000
    if not nbytes:
        raise ArgumentError(f"size {text!r} is not a number of bytes such as 4000000, '4 MB' or '1.5 MiB'")
    return nbytes


def mode_of(signature: Signature) -> str:
    """The one mode of a problem as it was written: the forward of a transposed convolution is ``deconv``."""
    if not isinstance(signature, ConvSignature):
        return "gemm"
    return "deconv" if signature.transposed and signature.mode == "fwd" else signature.mode


def types_of(signature: Signature) -> tuple[str, str, str, str]:
    """The types of the input, the filter, the result and the sums; of a GEMM those of ``a``, ``b`` and ``c``."""
    if isinstance(signature, ConvSignature):
        return signature.input_dtype, signature.kernel_dtype, signature.output_dtype, signature.acc_dtype
    return signature.a_dtype, signature.b_dtype, signature.c_dtype, signature.acc_dtype

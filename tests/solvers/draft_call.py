"""Runs a solver's draft through ctypes, without the runtime: the smallest way to call a kernel."""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from tilesmith.plan.records import Draft, Integer, Launch, Memset, Parameter, Pointer, Real, Source, Space
from tilesmith.plan.slots import slots_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.targets.target import CpuTarget
from tilesmith.toolchain.build import build_unit

BAND = 256  # elements before and behind the result that nothing may touch


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tilesmith-test-")


@cache
def _library(sources: tuple[Source, ...], target: CpuTarget) -> ctypes.CDLL:
    name = hashlib.sha256("".join(s.prelude + s.text for s in sources).encode()).hexdigest()[:24]
    path = Path(_folder().name) / f"{name}.so"
    if not path.exists():
        build_unit(sources, target, path)
    return ctypes.CDLL(str(path))


def _memory(nbytes: int, fill: int) -> np.ndarray:
    raw = np.full(nbytes + 128, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def compile_drafts(drafts: list[Draft], target: CpuTarget) -> None:
    """Compile all sources of several drafts in one call, so that a test waits for one compiler only."""
    sources = tuple(dict.fromkeys(s for d in drafts for s in d.sources))
    path = Path(_folder().name) / f"batch{len(list(Path(_folder().name).iterdir()))}.so"
    build_unit(sources, target, path)
    library = ctypes.CDLL(str(path))
    for draft in drafts:
        _BUILT[draft.sources] = library


_BUILT: dict[tuple[Source, ...], ctypes.CDLL] = {}


def call_draft(
    draft: Draft,
    target: CpuTarget,
    signature: ConvSignature | GemmSignature,
    arguments: tuple[np.ndarray, ...],
    chunk: int = 0,
    result: np.ndarray | None = None,
    over: str = "",
) -> np.ndarray:
    """The result in its own layout.

    ``chunk``: items handed out at a time (0: all), in reverse order. ``over``: the slot whose memory is the result's.
    """
    library = _BUILT.get(draft.sources) or _library(draft.sources, target)
    *_, slot = slots_of(signature)
    kind = dtype(slot.dtype).numpy()
    span = slot.nbytes // kind.itemsize
    band = np.full(span + 2 * BAND, 0xFF, np.uint8 if kind.itemsize == 1 else f"u{kind.itemsize}").view(kind)
    band.view(np.uint8)[...] = 0xFF
    out = np.lib.stride_tricks.as_strided(band[BAND:], slot.shape, [s * kind.itemsize for s in slot.strides])
    if result is not None:
        out[...] = result.reshape(slot.shape)
    touched = band.view(np.uint8) if result is None else None
    order = signature.canonical_order if isinstance(signature, ConvSignature) else range(len(arguments))
    inputs = [arguments[i] for i in order][: len(slots_of(signature)) - 1]
    if over:
        place = [slot.name for slot in slots_of(signature)].index(over)
        out[...] = inputs[place].reshape(slot.shape)
        inputs[place] = out
    packed = _memory(draft.packed_bytes, 0xFF)
    workspace = _memory(draft.workspace_bytes, 0xFF)

    def address(pointer: Pointer) -> int:
        if pointer.space == Space.SLOT:
            base = inputs[pointer.index].ctypes.data if pointer.index < len(inputs) else out.ctypes.data
        else:
            base = (packed if pointer.space == Space.PACKED else workspace).ctypes.data
        return base + pointer.offset

    for step in (*draft.prepare, *draft.run):
        if isinstance(step, Memset):
            ctypes.memset(address(step.pointer), step.value, step.nbytes)
        else:
            _launch(library, step, address, chunk)
    if touched is not None:
        inside = np.zeros(len(band), bool)
        np.lib.stride_tricks.as_strided(inside[BAND:], slot.shape, slot.strides)[...] = True
        outside = band.view(np.uint8).reshape(len(band), kind.itemsize)[~inside]
        assert (outside == 0xFF).all(), "written outside the result"
    return out


def _launch(library: ctypes.CDLL, step: Launch, address, chunk: int) -> None:
    pointers = [address(p) for p in step.parameters if isinstance(p, Pointer)]
    numbers = [_bits(p) for p in step.parameters if not isinstance(p, Pointer)]
    p = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
    s = (ctypes.c_int64 * max(len(numbers), 1))(*numbers)
    function = getattr(library, step.symbol)
    function.restype = None
    items = step.grid[0]
    starts = range(0, items, chunk or items)
    for begin in reversed(starts):
        scratch = _memory(step.shared_bytes, 0xFF)
        end = min(begin + (chunk or items), items)
        function(p, s, ctypes.c_void_p(scratch.ctypes.data), ctypes.c_int64(begin), ctypes.c_int64(end))


def _bits(value: Parameter) -> int:
    if isinstance(value, Real):
        return int(np.float64(value.value).view(np.int64))
    assert isinstance(value, Integer)
    return value.value


def logical(signature: ConvSignature | GemmSignature, result: np.ndarray) -> np.ndarray:
    """The canonical result on the axes of ``torch_answer``: those of the signature as it was given."""
    if isinstance(signature, GemmSignature):
        return result
    canonical = signature.canonical
    layout = parse_layout(canonical.input_layout if canonical.mode == "bwd" else canonical.output_layout)
    moved = result.transpose([layout.order.index(a) for a in "NCDHW" if a in layout.order])
    return moved if moved.ndim == signature.spatial_dims + 2 else moved[:, :, 0]

"""The rules that every plan obeys. The C runtime checks the same rules on the serialised form."""

from __future__ import annotations

import re

from tilesmith.errors import PlanError
from tilesmith.plan.check_map import check_map, map_span
from tilesmith.plan.records import Extent, Launch, Memset, Plan, Pointer, Slot, Space, Step, TensorMap
from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import DTYPES

MAX_BYTES = 2**62
MAX_THREADS = 1024
MAX_ALIGNMENT = 4096
MAX_PARAMETERS = 256
MAX_AXES = 8
MAX_SYMBOL = 255
FILTER_SLOT = 1  # the slot that ``prepare`` may read
FAMILIES = ("cpu", "cuda")
# CUDA's limits on every arch since sm_80; what one device allows is for its driver to say.
_CUDA_GRID, _CUDA_BLOCK, _CUDA_CLUSTER = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 16
_CUDA_THREADS, _CUDA_SHARED, _CUDA_PARAMETER_BYTES = 1024, 256 * 1024, 4096
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_plan(plan: Plan) -> None:
    """``PlanError`` names the first rule that ``plan`` breaks."""
    for name in ("problem", "target", "solver", "config", "provenance"):
        _check_text(name, getattr(plan, name))
    if plan.family not in FAMILIES:
        raise PlanError(f"family {plan.family!r} does not exist; known: {', '.join(FAMILIES)}")
    _check_range("threads", plan.threads, 1, MAX_THREADS if plan.family == "cpu" else 1)
    _check_range("alignment", plan.alignment, 1, MAX_ALIGNMENT)
    if plan.alignment & (plan.alignment - 1):
        raise PlanError(f"alignment {plan.alignment} is not a power of two")
    for name in ("packed_bytes", "workspace_bytes", "scratch_offset", "scratch_stride"):
        _check_range(name, getattr(plan, name), 0, MAX_BYTES)
    for name in ("scratch_offset", "scratch_stride"):
        if getattr(plan, name) % plan.alignment:
            raise PlanError(f"{name} {getattr(plan, name)} is not a multiple of the alignment {plan.alignment}")
    if plan.scratch_offset + plan.threads * plan.scratch_stride > plan.workspace_bytes:
        raise PlanError(
            f"scratch of {plan.threads} threads, {plan.scratch_stride} bytes each from {plan.scratch_offset}, "
            f"ends beyond the workspace of {plan.workspace_bytes} bytes"
        )
    if plan.family == "cuda" and plan.scratch_stride:
        raise PlanError(f"scratch_stride {plan.scratch_stride} of a cuda plan is not 0")
    for slot in plan.slots:
        _check_slot(slot)
    for digest in plan.artifacts:
        if not _DIGEST.fullmatch(digest):
            raise PlanError(f"artifact {digest!r} is no sha256 in hexadecimal")
    for step in plan.prepare:
        _check_step(plan, step, preparing=True)
    for step in plan.run:
        _check_step(plan, step, preparing=False)


def _check_slot(slot: Slot) -> None:
    _check_text("slot name", slot.name)
    if slot.dtype not in DTYPES:
        raise PlanError(f"slot {slot.name}: dtype {slot.dtype!r} does not exist")
    if len(slot.shape) != len(slot.strides) or len(slot.shape) > MAX_AXES:
        raise PlanError(f"slot {slot.name}: shape {slot.shape} and strides {slot.strides} do not fit together")
    for size, stride in zip(slot.shape, slot.strides, strict=True):
        _check_range(f"slot {slot.name}: size", size, 1, 2**31 - 1)
        _check_range(f"slot {slot.name}: stride", stride, 0, MAX_BYTES)
    span = span_bytes(slot.dtype, slot.shape, slot.strides)
    if slot.nbytes != span or span > MAX_BYTES:
        raise PlanError(f"slot {slot.name}: {slot.nbytes} bytes, but its elements span {span}")


def _check_step(plan: Plan, step: Step, preparing: bool) -> None:
    if isinstance(step, Memset):
        _check_range("memset value", step.value, 0, 255)
        _check_range("memset size", step.nbytes, 0, MAX_BYTES)
        _check_pointer(plan, step.pointer, step.nbytes, preparing)
        if step.pointer.space == Space.SLOT and not plan.slots[step.pointer.index].is_output:
            raise PlanError(f"memset writes slot {step.pointer.index}, which is an input")
        return
    if len(step.symbol) > MAX_SYMBOL or not _SYMBOL.fullmatch(step.symbol):
        raise PlanError(f"symbol {step.symbol!r} is no C name of at most {MAX_SYMBOL} letters")
    _check_range(f"{step.symbol}: artifact", step.artifact, 0, len(plan.artifacts) - 1)
    _check_extent(f"{step.symbol}: grid", step.grid, 0)
    _check_extent(f"{step.symbol}: block", step.block, 1)
    _check_extent(f"{step.symbol}: cluster", step.cluster, 1)
    if plan.family == "cuda":
        _check_cuda_launch(step)
    else:
        _check_range(f"{step.symbol}: shared_bytes", step.shared_bytes, 0, plan.scratch_stride)
        if step.programmatic:
            raise PlanError(f"{step.symbol}: programmatic is CUDA's")
    if len(step.parameters) > MAX_PARAMETERS:
        raise PlanError(f"{step.symbol}: {len(step.parameters)} parameters, more than {MAX_PARAMETERS}")
    for parameter in step.parameters:
        if isinstance(parameter, Pointer):
            _check_pointer(plan, parameter, 0, preparing)
        elif isinstance(parameter, TensorMap):
            if plan.family != "cuda":
                raise PlanError(f"{step.symbol}: a {plan.family} kernel takes no tensor map")
            check_map(step.symbol, parameter)
            _check_pointer(plan, parameter.pointer, map_span(parameter), preparing)


def _check_cuda_launch(step: Launch) -> None:
    for name, extent, limits in (("grid", step.grid, _CUDA_GRID), ("block", step.block, _CUDA_BLOCK)):
        for value, most in zip(extent, limits, strict=True):
            _check_range(f"{step.symbol}: {name}", value, 0, most)
    threads = step.block[0] * step.block[1] * step.block[2]
    _check_range(f"{step.symbol}: threads of a block", threads, 1, _CUDA_THREADS)
    blocks = step.cluster[0] * step.cluster[1] * step.cluster[2]
    _check_range(f"{step.symbol}: blocks of a cluster", blocks, 1, _CUDA_CLUSTER)
    if any(grid % cluster for grid, cluster in zip(step.grid, step.cluster, strict=True)):
        raise PlanError(f"{step.symbol}: grid {step.grid} is no multiple of the cluster {step.cluster}")
    _check_range(f"{step.symbol}: shared_bytes", step.shared_bytes, 0, _CUDA_SHARED)
    nbytes = 0
    for parameter in step.parameters:
        size, alignment = (128, 64) if isinstance(parameter, TensorMap) else (8, 8)
        nbytes = -(-nbytes // alignment) * alignment + size
    _check_range(f"{step.symbol}: bytes of parameters", nbytes, 0, _CUDA_PARAMETER_BYTES)


def _check_pointer(plan: Plan, pointer: Pointer, nbytes: int, preparing: bool) -> None:
    _check_range("pointer offset", pointer.offset, 0, MAX_BYTES)
    if pointer.space == Space.SLOT:
        _check_range("pointer slot", pointer.index, 0, len(plan.slots) - 1)
        if preparing and (pointer.index != FILTER_SLOT or plan.slots[pointer.index].is_output):
            raise PlanError(
                f"prepare points at slot {pointer.index}; it may read the filter, slot {FILTER_SLOT}, alone"
            )
        size = plan.slots[pointer.index].nbytes
    else:
        _check_range("pointer index", pointer.index, 0, 0)
        # Scratch belongs to threads: steps share what lies before it.
        size = plan.packed_bytes if pointer.space == Space.PACKED else plan.scratch_offset
    if pointer.offset + nbytes > size:
        raise PlanError(f"{nbytes} bytes at {pointer.offset} of {pointer.space.name} end beyond its {size} bytes")


def _check_extent(name: str, extent: Extent, least: int) -> None:
    if len(extent) != 3:
        raise PlanError(f"{name} {extent} has not three values")
    for value in extent:
        _check_range(name, value, least, MAX_BYTES)


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise PlanError(f"{name} {value!r} is not an integer from {least} to {most}")


def _check_text(name: str, text: str) -> None:
    if "\0" in text:
        raise PlanError(f"{name} {text!r} holds a NUL")

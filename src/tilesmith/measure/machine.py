"""The peak rates of this machine: multiply-adds and bytes a second, measured once by generated kernels.

Arithmetic is the rate of one core times the cores of the target: an upper bound that other work on the machine does not
blur. Bandwidth is that of reading, by all threads of the target, from the last-level cache and from memory.
Of GPUs the figures are those of the card's data sheet (``sheet_machine``).
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.measure.host import host_facts
from tilesmith.measure.timing import interleave
from tilesmith.plan.records import Integer, Launch, Plan, Pointer, Slot, Source, Space
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.work import least_work
from tilesmith.runtime.executable import Executable
from tilesmith.targets.cards import card_of
from tilesmith.targets.detect_cuda import cuda_devices
from tilesmith.targets.target import CpuTarget, CudaTarget, Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.toolchain.files import read
from tilesmith.toolchain.sealed import seal, unseal

_FORMAT = 1
_TURNS = 20_000
_ITEMS = 16  # of a bandwidth kernel a thread: enough to even out, long enough to count
_ROUNDS = 5


@dataclass(frozen=True)
class Machine:
    """Peaks of a target on a host: operations a second (a multiply-add counts two) and bytes read a second.

    ``bf16_flops`` is None without bf16 dot products, and of matrix tiles where there are those. The last three are of
    GPUs alone.
    """

    target: str
    host: str
    date: str
    fp32_flops: float
    fp64_flops: float
    bf16_flops: float | None
    cache_bandwidth: float
    memory_bandwidth: float
    tf32_flops: float | None = None
    fp8_flops: float | None = None
    int8_flops: float | None = None


def machine_of(target: Target, cache: ArtifactCache, ordinal: int = 0) -> Machine:
    """The peaks of ``target`` here, measured at the first call (a second or two) and kept in the cache's folder.

    Those of a GPU (of CUDA device ``ordinal``) are known without a measurement.
    """
    if isinstance(target, CudaTarget):
        return card_machine(target, ordinal)
    host = host_facts(find_compiler().identity)
    found = known_machine(target, host.name, cache)
    if found is None:
        found = measure_machine(target, cache)
        # A folder that cannot be written costs the next process a second.
        with contextlib.suppress(OSError):
            cache.publish(_file_of(target, host.name), seal(asdict(found)))
    return found


def known_machine(target: CpuTarget, host: str, cache: ArtifactCache) -> Machine | None:
    """The peaks of ``target`` on the machine of this name, as ``machine_of`` kept them; nothing is measured."""
    name = _file_of(target, host)
    return next((m for folder in cache.folders() if (m := _read(folder / name, target.name, host))), None)


def _file_of(target: CpuTarget, host: str) -> str:
    key = hashlib.sha256(f"{_FORMAT}\0{host}\0{target}".encode()).hexdigest()[:32]
    return f"machine/{key}.json"


def measure_machine(target: CpuTarget, cache: ArtifactCache) -> Machine:
    """Measure the peaks now. Raises ``NoCompilerError``."""
    host = host_facts(find_compiler().identity)
    one = replace(target, cores=1)
    rates = {}
    for dtype in ("fp32", "fp64", *(("bf16",) if target.bf16_dot else ())):
        source, work = _tiles(one) if dtype == "bf16" and target.bf16_tiles else _arithmetic(one, dtype)
        rates[dtype] = work / _seconds(source, one, cache, (Integer(_TURNS),), items=1, nbytes=64) * target.cores
    # Half of the cache is certainly ours; four times it is certainly memory.
    near, far = (_round(nbytes, target) for nbytes in (target.l3_bytes // 2, min(4 * target.l3_bytes, 1 << 29)))
    # All threads reach at least the bandwidth of one, whatever else the machine runs now.
    speeds = [max(_bandwidth(t, cache, nbytes) for t in {target, one}) for nbytes in (near, far)]
    return Machine(
        target.name, host.name, host.date, rates["fp32"], rates["fp64"], rates.get("bf16"), max(speeds), speeds[1]
    )  # fmt: skip


def card_machine(target: CudaTarget, ordinal: int) -> Machine:
    """The peaks of the GPU that is CUDA device ``ordinal`` here."""
    host = host_facts("", cuda_devices()[ordinal])
    return sheet_machine(target, host.name, host.date)


def sheet_machine(target: CudaTarget, host: str, date: str) -> Machine:
    """The peaks of a GPU's data sheet, which no kernel exceeds (the target has those that it sustains)."""
    return _of_record(target, host, date, *card_of(target.arch, target.card, target.cores, target.clock_hz).of_sheet)


def sustained_machine(target: CudaTarget) -> Machine:
    """The rates that a GPU's record says it sustains, which are below its data sheet's peaks."""
    return _of_record(target, "", "")


def _of_record(target: CudaTarget, host: str, date: str, operations: float = 1.0, moved: float = 1.0) -> Machine:
    """The record's rates over the shares that it sustains of ``operations`` and of bytes ``moved``."""
    bandwidth = target.bytes_per_s / moved
    return Machine(
        target.name, host, date, target.fp32_flops / operations, target.fp64_flops / operations,
        target.bf16_flops / operations, bandwidth, bandwidth, target.tf32_flops / operations,
        target.fp8_flops / operations, target.int8_flops / operations,
    )  # fmt: skip


def roofline_seconds(signature: Signature, target: Target, machine: Machine) -> float:
    """The least time that the problem can take: its operations at the peak, or its bytes at the bandwidth.

    Counted are the products and the pixels that no kernel can leave out (``problems.work.least_work``).
    Operands that fit into the last-level cache together come from there (calls repeat on the same tensors).
    Integers and fp16 are multiplied as fp32 on CPUs.
    """
    operations, nbytes = least_work(signature)
    if not isinstance(target, CpuTarget):  # GPUs are measured with a cold cache
        return max(operations / peak_of(signature, machine), nbytes / machine.memory_bandwidth)
    bandwidth = machine.cache_bandwidth if nbytes <= target.l3_bytes else machine.memory_bandwidth
    return max(operations / peak_of(signature, machine), nbytes / bandwidth)


def peak_of(signature: Signature, machine: Machine) -> float:
    """The peak rate, in operations a second, at which the operands of a problem are multiplied."""
    if signature.acc_dtype == "fp64":
        return machine.fp64_flops
    if isinstance(signature, GemmSignature):
        operands = {signature.a_dtype, signature.b_dtype}
    else:
        reads = {"fwd": ("input", "kernel"), "bwd": ("output", "kernel"), "wrw": ("output", "input")}
        operands = {getattr(signature, f"{name}_dtype") for name in reads.get(signature.mode, ("output",))}
    if machine.tf32_flops is None:
        return machine.bf16_flops if operands == {"bf16"} and machine.bf16_flops else machine.fp32_flops
    kinds = {
        "bf16": machine.bf16_flops, "fp16": machine.bf16_flops, "fp8e4m3": machine.fp8_flops,
        "fp8e5m2": machine.fp8_flops, "int8": machine.int8_flops,
    }  # fmt: skip
    plain = machine.tf32_flops if signature.acc_dtype == "tf32" else machine.fp32_flops
    return min(kinds.get(name) or plain for name in operands)


# --- kernels ----------------------------------------------------------------------------------------------------------

_HEAD = "void @SYM@(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {\n  (void)scratch;\n"


def _arithmetic(target: CpuTarget, dtype: str) -> tuple[Source, float]:
    """A loop of independent multiply-adds in registers, and its operations."""
    count = target.vector_registers - 4
    lanes = target.lanes(8 if dtype == "fp64" else 4)
    scalar = "double" if dtype == "fp64" else "float"
    vector = f"typedef {scalar} @SYM@_v __attribute__((vector_size({target.vector_bytes})));\n"
    names = [f"c{i}" for i in range(count)]
    init = "".join(f"  @SYM@_v {n} = *in + {i};\n" for i, n in enumerate(names))
    if dtype == "bf16":
        turn = "".join(f"    {n} = (@SYM@_v)ts_dot_bf16((ts_vf){n}, (ts_vh2)a, (ts_vh2)a);\n" for n in names)
        turn = turn.replace("(ts_vh2)a", "(__typeof__(ts_pair_bf16(p[0])))a")
    else:
        turn = "".join(f"    {n} = {n} * a + a;\n" for n in names)
    keep = f"  *(@SYM@_v *)p[1] = {' + '.join(names)};\n"
    body = (
        vector + _HEAD + "  (void)begin, (void)end;\n  const @SYM@_v *in = p[0];\n  const @SYM@_v a = *in;\n" + init
        + '  for (ts_i64 i = 0; i < s[0]; i++) {\n    __asm__ volatile("");\n' + turn + "  }\n" + keep + "}\n"
    )  # fmt: skip
    source = make_source("c", "peak", dtype, f"r{count}", target.arch, c_prelude(target), body)
    return source, _TURNS * count * lanes * 2.0 * (2 if dtype == "bf16" else 1)


def _tiles(target: CpuTarget) -> tuple[Source, float]:
    """A loop of products of tile registers into four sums, and its operations."""
    body = (
        _HEAD
        + """  (void)begin, (void)end, (void)p;
  ts_tiles *tiles = (ts_tiles *)scratch;
  TS_TILE_BEGIN(16, 6);
  for (ts_i64 i = 0; i < s[0]; i++) {
    TS_TILE_DOT(0, 4, 6);
    TS_TILE_DOT(1, 4, 7);
    TS_TILE_DOT(2, 5, 6);
    TS_TILE_DOT(3, 5, 7);
  }
  TS_TILE_END();
}
"""
    )
    source = make_source("c", "peak", "bf16", "tiles", target.arch, c_prelude(target), body)
    return source, _TURNS * 4 * 16 * 16 * 32 * 2.0


def _read_source(target: CpuTarget) -> Source:
    body = (
        _HEAD
        + """  const ts_vf zero = {0};
  ts_vf c0 = zero, c1 = zero, c2 = zero, c3 = zero;
  for (const char *at = (const char *)p[0] + begin * s[0], *to = (const char *)p[0] + end * s[0]; at < to;
       at += 4 * sizeof zero) {
    const ts_vf *v = (const ts_vf *)at;
    c0 += v[0], c1 += v[1], c2 += v[2], c3 += v[3];
  }
  c0 += c1 + c2 + c3;
  ((ts_vf *)p[1])[begin] = c0;
}
"""
    )
    return make_source("c", "read", "f32", "v4", target.arch, c_prelude(target), body)


def _bandwidth(target: CpuTarget, cache: ArtifactCache, nbytes: int) -> float:
    items = target.cores * _ITEMS
    seconds = _seconds(_read_source(target), target, cache, (Integer(nbytes // items),), items, nbytes)
    return nbytes / seconds


def _round(nbytes: int, target: CpuTarget) -> int:
    """A size that every item reads an equal, whole number of turns of."""
    step = target.cores * _ITEMS * 4 * target.vector_bytes
    return max(1, nbytes // step) * step


def _seconds(
    source: Source, target: CpuTarget, cache: ArtifactCache, scalars: tuple[Integer, ...], items: int, nbytes: int
) -> float:
    """Time of one launch over a buffer of ``nbytes``, through compiler, cache, plan and runtime as any kernel."""
    artifact = cache.get_or_build(source, target)
    shape = (nbytes // 4,)
    results = items * target.vector_bytes
    slots = (
        Slot("x", "fp32", shape, (1,), nbytes, False),
        Slot("y", "fp32", (results // 4,), (1,), results, True),
    )
    launch = Launch(0, source.symbol, (items, 1, 1), (Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1), *scalars))
    plan = Plan(
        problem="calibration", target=target.name, solver="calibration", config="", slots=slots,
        artifacts=(artifact.digest,), prepare=(), run=(launch,), packed_bytes=0, workspace_bytes=0, scratch_offset=0,
        scratch_stride=0, threads=target.cores,
    )  # fmt: skip
    tensors = [_aligned(slot.nbytes) for slot in slots]
    tensors[0] += 0.5  # pages that were never written are all one page
    call = Executable(plan, [artifact.path]).hold(tensors)
    # A peak is what the machine reaches at its best moment.
    timings = [interleave({"": call}, budget_s=0.1, rounds=_ROUNDS, threads=target.cores)[""] for _ in range(3)]
    return min(timing.low_us for timing in timings) * 1e-6


def _aligned(nbytes: int) -> Any:
    memory = np.zeros(nbytes + 64, np.uint8)
    offset = -memory.__array_interface__["data"][0] % 64
    return memory[offset : offset + nbytes].view(np.float32)


# --- the file ---------------------------------------------------------------------------------------------------------


def _read(path: Path, target: str, host: str) -> Machine | None:
    try:
        machine = Machine(**(unseal(read(str(path), own=True)) or {}))
        numbers = (machine.fp32_flops, machine.fp64_flops, machine.cache_bandwidth, machine.memory_bandwidth)
        sound = (machine.target, machine.host) == (target, host) and all(number > 0 for number in numbers)
    except (OSError, TypeError):
        return None
    return machine if sound else None

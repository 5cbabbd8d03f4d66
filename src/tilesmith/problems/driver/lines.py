"""The lines that a driver prints, from plain values; programs match them. Only ``GPU`` becomes the target's family."""

from __future__ import annotations

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.work import bytes_moved, flops

_TITLES = {"fwd": "Forward Conv.", "bwd": "Backward Data Conv.", "wrw": "Backward Weights Conv.",
           "bgrad": "Backward Bias Conv."}  # fmt: skip
_CHECKED = {"fwd": "Forward Convolution", "bwd": "Backward Convolution Data", "wrw": "Backward Convolution Weights",
            "bgrad": "Backward Convolution Bias"}  # fmt: skip
_STATS = {"fwd": "fwd-conv", "bwd": "bwdd-conv", "wrw": "bwdw-conv"}


def command_line(command: str) -> str:
    """The first line: the command as it was given."""
    return command if command.startswith("MIOpenDriver") else f"MIOpenDriver {command}"


def algorithm_line(direction: str, algorithm: int, solution: int, solver: str) -> str:
    """``MIOpen Forward Conv. Algorithm: 5, Solution: 13/c_dense``."""
    return f"MIOpen {_TITLES[direction]} Algorithm: {algorithm}, Solution: {solution}/{solver}"


def time_line(direction: str, milliseconds: float, family: str = "CPU", gemm: bool = False) -> str:
    """``CPU Kernel Time Forward Conv. Elapsed: 0.123000 ms (average)``; GEMM and bias rows as MIOpen has them."""
    if gemm:
        return f"{family} Kernel Time Gemm Elapsed: {milliseconds:f} ms"
    tail = "" if direction == "bgrad" else " (average)"
    return f"{family} Kernel Time {_TITLES[direction]} Elapsed: {milliseconds:f} ms{tail}"


def wall_line(direction: str, milliseconds: float, auxiliary_ms: float = 0.0, workspace_query_ms: float = 0.0) -> str:
    """``Wall-clock Time Forward Conv. Elapsed: 0.5 ms, Auxiliary API calls: 0 ms (GWSS: 0)``."""
    return (
        f"Wall-clock Time {_TITLES[direction]} Elapsed: {milliseconds:g} ms, "
        f"Auxiliary API calls: {auxiliary_ms:g} ms (GWSS: {workspace_query_ms:g})"
    )


def stats_lines(signature: ConvSignature | GemmSignature, milliseconds: float) -> tuple[str, ...]:
    """The two ``stats:`` lines: names, then numbers. None for a bias gradient, whose row MIOpen does not have.

    Sizes are those of the user's own forward problem. Operations and bytes are exact in each direction, with
    ``--mode trans`` and in 3-D, where MIOpen's are not.
    """
    seconds = milliseconds / 1e3
    work, moved = flops(signature), bytes_moved(signature)
    rates = f"{work / seconds / 1e9:.0f}, {moved / seconds / 1e9:.0f}, {milliseconds:f}"
    if isinstance(signature, GemmSignature):
        written = signature.batch * signature.m * signature.n * dtype(signature.c_dtype).nbytes
        sizes = f"gemm, {signature.m}, {signature.n}, {signature.k}, {signature.batch}"
        head = "stats: name, m, n, k, batch, flopCnt, bytesRead, bytesWritten, GFLOPs, GB/s, timeMs"
        return (head, f"stats: {sizes},  {work}, {moved - written}, {written}, {rates}")
    if signature.mode == "bgrad":
        return ()
    return _conv_stats(signature, work, moved, rates)


def _conv_stats(sig: ConvSignature, work: int, moved: int, rates: str) -> tuple[str, ...]:
    g = sig.canonical.geometry
    view = {"fwd": g.y, "bwd": g.x, "wrw": g.w}[g.direction]
    written = dtype(view.dtype).nbytes
    for size in view.shape:
        written *= size
    taps, out = sig.kernel_logical[2:], sig.output_logical[2:]
    stride = sig.stride[0]
    letters = "dhw" if sig.spatial_dims == 3 else "hw"
    if sig.spatial_dims == 1:  # a row of the 2-D table
        taps, out, stride = (1, *taps), (1, *out), 1
    names = {"hw": "ho, wo", "dhw": "do, ho, wo"}[letters]
    head = (
        f"stats: name, n, c, {names}, {'z, ' * (letters == 'dhw')}y, x, k, "
        "flopCnt, bytesRead, bytesWritten, GFLOPs, GB/s, timeMs"
    )
    label = f"{_STATS[sig.mode]}{'x'.join(map(str, taps))}u{stride}"
    sizes = (sig.input_logical[0], sig.input_logical[1], *out, *taps, sig.output_logical[1])
    row = f"stats: {label}, {', '.join(map(str, sizes))},  {work}, {moved - written}, {written}, {rates}"
    return (head, row)


def verify_line(direction: str, error: float, tolerance: float, reference: str = "CPU", gemm: bool = False) -> str:
    """``Forward Convolution Verifies OK on CPU reference (1e-07 < 1.5e-06)``, or ``... FAILED: 3 > 1.5e-06``.

    The bound itself passes; an error that is not a number fails.
    """
    title = "Forward GEMM" if gemm else _CHECKED[direction]
    if not error <= tolerance:
        return f"{title} FAILED: {error:g} > {tolerance:g}"
    return f"{title} Verifies OK on {reference} reference ({error:g} < {tolerance:g})"

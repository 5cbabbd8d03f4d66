"""A driver command, run verbatim: the lines that MIOpenDriver prints, with right numbers."""

from __future__ import annotations

import shlex
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilesmith.cli.terminal import print_json
from tilesmith.dispatch.facts import open_databases, target_of
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.measuring import check_launchable, steady_call
from tilesmith.dispatch.planning import open_cache
from tilesmith.errors import CommandError, FileFormatError
from tilesmith.measure.accuracy import Accuracy, check
from tilesmith.measure.memory import oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.oracle import oracle
from tilesmith.problems.driver import DriverCommand, RunOptions, lines, parse_command
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.table import candidates

_FIND, _BEST = "-1", "0"
# MIOpen's numbers of algorithms: GEMM, direct, implicit GEMM.
_GEMM, _DIRECT, _IMPLICIT_GEMM = 0, 1, 5
_DUMPS = {"fwd": "dump_fwd_out", "bwd": "dump_bwd_din", "wrw": "dump_bwd_dwei", "bgrad": "dump_bwd_db"}


@dataclass(frozen=True)
class Ran:
    """One direction: what ran, its times (None when not asked for) and the verdict on its numbers."""

    launch: Launchable
    kernel_ms: float | None
    wall_ms: float | None
    verdict: Accuracy | None


def run_command(words: Sequence[str]) -> int:
    """Run ``[MIOpenDriver] BASE FLAGS``; exit status 1 if a result is wrong.

    ``--json`` at the end prints one object a direction in place of the driver's lines.
    """
    as_json = words[-1] == "--json"
    given = list(words[:-1] if as_json else words)
    command = parse_command(shlex.join(given))
    if not as_json:
        click.echo(lines.command_line(" ".join(given[1:] if given[0].endswith("MIOpenDriver") else given)))
    status = 0
    for direction, signature in command.signatures:
        ran = _run(command, direction, signature)
        if ran.verdict is not None and not ran.verdict.ok:
            status = 1
        if as_json:
            print_json(_record(" ".join(given), direction, signature, ran))
        else:
            for line in _lines(command, direction, signature, ran):
                click.echo(line)
    return status


def _run(command: DriverCommand, direction: str, signature: Signature) -> Ran:
    options = command.options
    launch = _launchable(signature, options)
    kernel_ms = wall_ms = None
    verdict = None
    if options.time or options.dump_output or _files(options):
        # The oracle of a command's own data is that of the whole.
        more = oracle_bytes(signature) if options.verify and _files(options) else 0.0
        require_memory(tensor_bytes(signature) + more + launch.plan.workspace_bytes, "this problem")
        arguments = _arguments(command, direction, signature)
        if options.time:
            kernel_ms = _average_ms(steady_call(launch, arguments), options.iterations, warm=True)
            if options.wall:
                wall_ms = _average_ms(lambda: launch(*arguments), options.iterations, warm=options.wall == 2)
        if options.dump_output:
            _dump(np.asarray(launch(*arguments)), f"{_DUMPS[direction]}_cpu.bin")
        if options.verify and _files(options):
            verdict = check(launch(*arguments), oracle(signature, arguments), signature)
        del arguments
    if options.verify and verdict is None:
        verdict = check_launchable(launch)
    return Ran(launch, kernel_ms, wall_ms, verdict)


def _launchable(signature: Signature, options: RunOptions) -> Launchable:
    if options.search:
        from tilesmith.tune.session import tune

        tune(
            signature, target_of(None, None), database=open_databases().writable, cache=open_cache(),
            strategy="exhaustive", max_seconds=None,
        )  # fmt: skip
    if options.solution in (_FIND, _BEST) or options.solution.startswith("-"):
        return get_launchable(signature)
    target = target_of(None, None)
    names = [candidate.name for candidate in candidates(signature, target)]
    for name in names:
        if options.solution in (name, _word(name), str(solution_id(name))):
            return get_launchable(signature, only=name)
    known = ", ".join(f"{solution_id(name)}/{_word(name)}" for name in names)
    raise CommandError(f"flag --solution (-S) {options.solution!r} names no solver of this problem; known: {known}")


def solution_id(solver: str) -> int:
    """A number that a solver keeps for ever: it comes from its name alone."""
    return zlib.crc32(solver.encode()) % 1_000_000


def _word(solver: str) -> str:
    """The name as the driver's lines have it, where programs match ``\\w+``."""
    return solver.replace("@", "_")


def _algorithm(solver: str) -> int:
    if solver.endswith("@gemm"):
        return _GEMM
    return _IMPLICIT_GEMM if "dense" in solver else _DIRECT


def _average_ms(call: Callable[[], object], iterations: int, *, warm: bool) -> float:
    if warm:
        call()
    count = max(1, iterations)
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e3


# --- data -------------------------------------------------------------------------------------------------------------


def _files(options: RunOptions) -> bool:
    return any((options.in_data, options.weights, options.in_bias, options.dout_data))


def _arguments(command: DriverCommand, direction: str, signature: Signature) -> tuple[Any, ...]:
    """Sample arguments, those replaced that the command reads from files."""
    arguments = list(sample_args(signature))
    o = command.options
    files = {
        "fwd": (o.in_data, o.weights, o.in_bias),
        "bwd": (o.dout_data, o.weights),
        "wrw": (o.dout_data, o.in_data),
        "bgrad": (o.dout_data,),
    }[direction]
    for place, name in enumerate(files[: len(arguments)]):
        if name:
            arguments[place][...] = _read(name, arguments[place])
    return tuple(arguments)


def _read(name: str, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise FileFormatError(f"{name}: cannot be read: {error.strerror or error}") from None
    if len(data) != like.size * like.itemsize:
        raise FileFormatError(f"{name}: holds {len(data)} bytes, a tensor of {like.shape} {like.dtype} needs "
                              f"{like.size * like.itemsize}")  # fmt: skip
    return np.frombuffer(data, like.dtype).reshape(like.shape)


def _dump(result: np.ndarray[Any, Any], name: str) -> None:
    try:
        result.tofile(name)
    except OSError as error:
        raise FileFormatError(f"{name}: cannot be written: {error.strerror or error}") from None


# --- output -----------------------------------------------------------------------------------------------------------


def _lines(command: DriverCommand, direction: str, signature: Signature, ran: Ran) -> list[str]:
    printed, gemm = [], command.is_gemm
    if ran.kernel_ms is not None:
        if not gemm and direction != "bgrad":
            solver = ran.launch.solver
            printed.append(lines.algorithm_line(direction, _algorithm(solver), solution_id(solver), _word(solver)))
        if ran.wall_ms is not None:
            printed.append(lines.wall_line(direction, ran.wall_ms))
        printed.append(lines.time_line(direction, ran.kernel_ms, gemm=gemm))
        if command.options.printconv:
            printed += lines.stats_lines(signature, ran.kernel_ms)
    if ran.verdict is not None:
        # Numbers within the bound can still come with a write outside the tensor.
        wrong = not ran.verdict.ok and ran.verdict.error <= ran.verdict.bound
        error = float("inf") if wrong else ran.verdict.error
        printed.append(lines.verify_line(direction, error, ran.verdict.bound, gemm=gemm))
        if not ran.verdict.ok:
            printed.append(f"  {ran.verdict.message}")
    return printed


def _record(command: str, direction: str, signature: Signature, ran: Ran) -> dict[str, object]:
    verdict = ran.verdict
    return {
        "command": command, "key": signature.key(), "direction": direction, "solver": ran.launch.solver,
        "config": ran.launch.config, "solution": solution_id(ran.launch.solver), "kernel_ms": ran.kernel_ms,
        "wall_ms": ran.wall_ms, "verified": None if verdict is None else verdict.ok,
        "error": None if verdict is None else verdict.error, "bound": None if verdict is None else verdict.bound,
        "reason": "" if verdict is None else verdict.message,
    }  # fmt: skip

"""A driver command, run verbatim: the lines that MIOpenDriver prints, with right numbers."""

from __future__ import annotations

import shlex
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from tilesmith.cli.terminal import print_json
from tilesmith.db.find_text import algorithm_of
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.measuring import (
    call_on_arrays,
    check_launchable,
    host_array,
    placed_arguments,
    steady_call,
    time_launchable,
)
from tilesmith.dispatch.places import device_ordinal, lasting_databases, open_cache, target_of
from tilesmith.errors import CommandError, FileFormatError
from tilesmith.measure.accuracy import Accuracy, check
from tilesmith.measure.memory import oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.oracle import oracle
from tilesmith.problems.driver import DriverCommand, RunOptions, lines, parse_command
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.reading import read_named
from tilesmith.solvers.table import candidates

_FIND, _BEST = "-1", "0"
# MIOpen's numbers of algorithms: GEMM, direct, implicit GEMM.
_ALGORITHMS = {"GEMM": 0, "Direct": 1, "ImplicitGEMM": 5}
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

    Behind the driver's flags may stand two of ours: ``--device cuda[:N]``, and ``--json``, which prints one object a
    direction in place of the driver's lines.
    """
    given, device, as_json = _own_flags(words)
    device_ordinal(device)  # one that does not exist is better met before anything is printed
    command = parse_command(shlex.join(given))
    if not as_json:
        click.echo(lines.command_line(" ".join(given[1:] if given[0].endswith("MIOpenDriver") else given)))
    status = 0
    for direction, signature in command.signatures:
        ran = _run(command, direction, signature, device)
        if ran.verdict is not None and not ran.verdict.ok:
            status = 1
        if as_json:
            print_json(_record(" ".join(given), direction, signature, ran))
        else:
            for line in _lines(command, direction, signature, ran):
                click.echo(line)
    return status


def _own_flags(words: Sequence[str]) -> tuple[list[str], str, bool]:
    """The driver's words, the device, and whether JSON is asked for."""
    given, device, as_json = list(words), "cpu", False
    while len(given) > 1:
        if given[-1] == "--json":
            as_json, given = True, given[:-1]
        elif given[-1].startswith("--device="):
            device, given = given[-1].partition("=")[2], given[:-1]
        elif given[-2] == "--device":
            device, given = given[-1], given[:-2]
        else:
            break
    return given, device, as_json


def _run(command: DriverCommand, direction: str, signature: Signature, device: str) -> Ran:
    options = command.options
    launch = _launchable(signature, options, device)
    kernel_ms = wall_ms = None
    verdict = None
    if options.time or options.dump_output or _files(options):
        # The oracle of a command's own data is that of the whole.
        more = oracle_bytes(signature) if options.verify and _files(options) else 0.0
        require_memory(tensor_bytes(signature) + more + launch.plan.workspace_bytes, "this problem")
        arguments = _arguments(command, direction, signature)
        if options.time:
            kernel_ms = _kernel_ms(launch, arguments, options.iterations)
            if options.wall:
                there = placed_arguments(launch, arguments)
                wall_ms = _average_ms(lambda: call_on_arrays(launch, there), options.iterations, warm=options.wall == 2)
        if options.dump_output or (options.verify and _files(options)):
            result = host_array(call_on_arrays(launch, placed_arguments(launch, arguments)))
            if options.dump_output:
                _dump(result, f"{_DUMPS[direction]}_{'cpu' if launch.target.family == 'cpu' else 'gpu'}.bin")
            if options.verify and _files(options):
                verdict = check(result, oracle(signature, arguments), signature)
        del arguments
    if options.verify and verdict is None:
        verdict = check_launchable(launch)
    return Ran(launch, kernel_ms, wall_ms, verdict)


def _kernel_ms(launch: Launchable, arguments: Sequence[Any], iterations: int) -> float:
    """Of ``run``: the average of warm calls on a CPU; on a GPU the median of calls with a cold cache."""
    if launch.target.family == "cpu":
        return _average_ms(steady_call(launch, arguments), iterations, warm=True)
    return time_launchable(launch, rounds=max(3, iterations)).median_us * 1e-3


def _launchable(signature: Signature, options: RunOptions, device: str) -> Launchable:
    target = target_of(None, None, device)
    if options.search:
        from tilesmith.tune.session import tune

        tune(
            signature, target, database=lasting_databases().writable, cache=open_cache(), strategy="exhaustive",
            max_seconds=None, device=max(0, device_ordinal(device)),
        )  # fmt: skip
    if options.solution in (_FIND, _BEST) or options.solution.startswith("-"):
        return get_launchable(signature, device=device)
    names = [candidate.name for candidate in candidates(signature, target)]
    for name in names:
        if options.solution in (name, _word(name), str(solution_id(name))):
            return get_launchable(signature, device=device, only=name)
    known = ", ".join(f"{solution_id(name)}/{_word(name)}" for name in names)
    raise CommandError(f"flag --solution (-S) {options.solution!r} names no solver of this problem; known: {known}")


def solution_id(solver: str) -> int:
    """A number that a solver keeps for ever: it comes from its name alone."""
    return zlib.crc32(solver.encode()) % 1_000_000


def _word(solver: str) -> str:
    """The name as the driver's lines have it, where programs match ``\\w+``."""
    return solver.replace("@", "_")


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
    data = read_named(name, like.size * like.itemsize)
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
            printed.append(
                lines.algorithm_line(direction, _ALGORITHMS[algorithm_of(solver)], solution_id(solver), _word(solver))
            )
        if ran.wall_ms is not None:
            printed.append(lines.wall_line(direction, ran.wall_ms))
        family = "CPU" if ran.launch.target.family == "cpu" else "GPU"
        printed.append(lines.time_line(direction, ran.kernel_ms, family, gemm=gemm))
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

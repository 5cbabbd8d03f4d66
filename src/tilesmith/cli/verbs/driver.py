"""A driver command, run verbatim: the lines that MIOpenDriver prints, with right numbers."""

from __future__ import annotations

import math
import shlex
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

from tilesmith.cli.terminal import budget_start, complain, print_json
from tilesmith.db.find_text import algorithm_of
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.dispatch.measuring import (
    call_on_arrays,
    check_launchable,
    host_array,
    placed_arguments,
    steady_call,
    time_launchable,
)
from tilesmith.errors import CommandError, FileFormatError
from tilesmith.measure.accuracy import Accuracy, check
from tilesmith.measure.memory import oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.oracle import oracle
from tilesmith.problems.driver import DriverCommand, RunOptions, lines, parse_command
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.reading import read_named
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda_driver import device_ordinal

_FIND, _BEST = "-1", "0"
SEARCH_S = 60.0  # of --search 1, for each direction
LEAST_S = 0.1
STOPPED_STATUS, STOPPED = 130, "stopped; what was found is kept, and the next search goes on from there"
NO_SEARCH = "--seconds has no effect: a gemm command has no --search (use `tilesmith tune`)"
_FILE_FLAGS = {
    "in_data": "--in_data (-d)", "weights": "--weights (-e)", "in_bias": "--in_bias (-a)",
    "dout_data": "--dout_data (-D)",
}  # fmt: skip
# MIOpen's numbers of algorithms: GEMM, direct, implicit GEMM.
_ALGORITHMS = {"GEMM": 0, "Direct": 1, "ImplicitGEMM": 5}
_DUMPS = {"fwd": "dump_fwd_out", "bwd": "dump_bwd_din", "wrw": "dump_bwd_dwei", "bgrad": "dump_bwd_db"}


@dataclass(frozen=True)
class RunResult:
    """One direction: the launchable, its times (None when not asked for) and the verdict on its numbers."""

    launch: Launchable
    kernel_ms: float | None
    wall_ms: float | None
    verdict: Accuracy | None


def run_command(words: Sequence[str]) -> int:
    """Run ``[MIOpenDriver] BASE FLAGS``; exit status 1 if a result is wrong.

    Among the driver's flags may stand some of ours: ``--device cuda[:N]``, ``--seconds S`` of a search (``-s 1``), and
    ``--json``, which prints one object a direction in place of the driver's lines.
    """
    given, own = _own_flags(words)
    device, as_json = own.device, own.as_json
    device_ordinal(device)  # one that does not exist is better met before anything is printed
    command = parse_command(shlex.join(given))
    for text in unheeded(command, own.seconds):
        complain(f"warning: {text}")
    if not as_json:
        click.echo(lines.command_line(" ".join(given[1:] if given[0].endswith("MIOpenDriver") else given)))
    status = 0
    if command.options.search:
        status = _search(command, device, SEARCH_S if own.seconds is None else own.seconds)
        if status == STOPPED_STATUS:
            return status
    for direction, signature in command.signatures:
        result = _run(command, direction, signature, device)
        if result.verdict is not None and not result.verdict.ok:
            status = 1
        if as_json:
            print_json(_record(" ".join(given), direction, signature, result))
        else:
            for line in _lines(command, direction, signature, result):
                click.echo(line)
    return status


@dataclass(frozen=True)
class OwnOptions:
    """The flags that are not the driver's."""

    device: str = "cpu"
    as_json: bool = False
    seconds: float | None = None


def _own_flags(words: Sequence[str]) -> tuple[list[str], OwnOptions]:
    """Separate the driver's words from Tilesmith's flags, which may be anywhere (the driver has no such names)."""
    given, own, left = [], OwnOptions(), list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word == "--json":
            own = replace(own, as_json=True)
        elif name in ("--device", "--seconds") and (equals or left):
            own = _with(own, name, value if equals else left.pop(0))
        else:
            given.append(word)
    return given, own


def _with(own: OwnOptions, name: str, value: str) -> OwnOptions:
    if name == "--device":
        return replace(own, device=value)
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not LEAST_S <= seconds < math.inf:
        raise CommandError(f"--seconds {value!r} is not a number of seconds, {LEAST_S} at least")
    return replace(own, seconds=seconds)


def unheeded(command: DriverCommand, seconds: float | None = None) -> list[str]:
    """The parts of a command that have no effect, and what to type instead: they would be ignored silently."""
    o, found = command.options, []
    if o.wall and not o.time:
        found.append(f"--wall (-w) {o.wall} prints nothing without --time (-t) 1")
    if o.iterations != RunOptions.iterations and not o.time:
        found.append(f"--iter (-i) {o.iterations} counts for --time (-t) 1 alone")
    if o.verification_cache:
        found.append("--verification_cache (-C) is not used: the reference is made anew for each check")
    if seconds is not None and not o.search:
        found.append("--seconds counts for --search (-s) 1 alone; write both" if not command.is_gemm else NO_SEARCH)
    read = {name for direction, signature in command.signatures for name in _files_of(direction, signature)}
    for name, flag in _FILE_FLAGS.items():
        if getattr(o, name) and name not in read:
            found.append(f"{flag} is read by none of the directions {', '.join(d for d, _ in command.signatures)}")
    return found


def _search(command: DriverCommand, device: str, seconds: float) -> int:
    """Search each direction. If a search finds no answer, print why; what is known runs then. 130 after Ctrl-C."""
    from tilesmith.ready.held import Place
    from tilesmith.ready.list_tuning import tune_list
    from tilesmith.ready.telling import Effort
    from tilesmith.ready.watch import Watch, tasks_of
    from tilesmith.ready.watch_display import watching

    place = Place(
        target_of(None, None, device), max(0, device_ordinal(device)), lasting_databases(), open_cache()
    )  # fmt: skip
    tasks = tasks_of((signature, 1) for _, signature in command.signatures)
    watch = Watch(tasks, each_s=seconds)
    with watching(watch) as watcher:
        stopped = tune_list(tasks, place, Effort(seconds=seconds), watcher, start=budget_start)
    directions = {signature.canonical.key(): direction for direction, signature in command.signatures}
    for key, row in watch.rows.items():
        if row.end is not None and row.end.reason:
            complain(f"{directions[key]}: {row.end.reason}")
    if stopped:
        complain(STOPPED)
        return STOPPED_STATUS
    return 0 if all(row.answered for row in watch.rows.values()) else 1


def _run(command: DriverCommand, direction: str, signature: Signature, device: str) -> RunResult:
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
    return RunResult(launch, kernel_ms, wall_ms, verdict)


def _kernel_ms(launch: Launchable, arguments: Sequence[Any], iterations: int) -> float:
    """Of ``run``: the average of warm calls on a CPU; on a GPU the median of calls with a cold cache."""
    if launch.target.family == "cpu":
        return _average_ms(steady_call(launch, arguments), iterations, warm=True)
    return time_launchable(launch, rounds=max(3, iterations)).median_us * 1e-3


def _launchable(signature: Signature, options: RunOptions, device: str) -> Launchable:
    target = target_of(None, None, device)
    if options.solution in (_FIND, _BEST) or options.solution.startswith("-"):
        return get_launchable(signature, device=device)
    names = [candidate.name for candidate in candidates(signature, target)]
    for name in names:
        if options.solution in (name, _word(name), str(solution_id(name))):
            return get_launchable(signature, device=device, only=name)
    known = ", ".join(f"{solution_id(name)}/{_word(name)}" for name in names)
    raise CommandError(f"flag --solution (-S) {options.solution!r} names no solver of this problem; known: {known}")


def solution_id(solver: str) -> int:
    """The number of a solver. It never changes, because it is computed from the name only."""
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
    for place, option in enumerate(_files_of(direction, signature)):
        name = getattr(command.options, option)
        if name:
            arguments[place][...] = _read(name, arguments[place])
    return tuple(arguments)


def _files_of(direction: str, signature: Signature) -> tuple[str, ...]:
    """The options that name the files of a direction's first arguments, in their order."""
    if isinstance(signature, GemmSignature):
        return ()
    bias = ("in_bias",) if signature.epilogue.bias else ()
    return {
        "fwd": ("in_data", "weights", *bias), "bwd": ("dout_data", "weights"), "wrw": ("dout_data", "in_data"),
        "bgrad": ("dout_data",),
    }[direction]  # fmt: skip


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


def _lines(command: DriverCommand, direction: str, signature: Signature, result: RunResult) -> list[str]:
    printed, gemm = [], command.is_gemm
    if result.kernel_ms is not None:
        if not gemm and direction != "bgrad":
            solver = result.launch.solver
            printed.append(
                lines.algorithm_line(direction, _ALGORITHMS[algorithm_of(solver)], solution_id(solver), _word(solver))
            )
        if result.wall_ms is not None:
            printed.append(lines.wall_line(direction, result.wall_ms))
        family = "CPU" if result.launch.target.family == "cpu" else "GPU"
        printed.append(lines.time_line(direction, result.kernel_ms, family, gemm=gemm))
        if command.options.printconv:
            printed += lines.stats_lines(signature, result.kernel_ms)
    if result.verdict is not None:
        # Numbers within the bound can still come with a write outside the tensor.
        wrong = not result.verdict.ok and result.verdict.error <= result.verdict.bound
        error = float("inf") if wrong else result.verdict.error
        printed.append(lines.verify_line(direction, error, result.verdict.bound, gemm=gemm))
        if not result.verdict.ok:
            printed.append(f"  {result.verdict.message}")
    return printed


def _record(command: str, direction: str, signature: Signature, result: RunResult) -> dict[str, object]:
    verdict = result.verdict
    return {
        "command": command, "key": signature.key(), "direction": direction, "solver": result.launch.solver,
        "config": result.launch.config, "solution": solution_id(result.launch.solver), "kernel_ms": result.kernel_ms,
        "wall_ms": result.wall_ms, "verified": None if verdict is None else verdict.ok,
        "error": None if verdict is None else verdict.error, "bound": None if verdict is None else verdict.bound,
        "reason": "" if verdict is None else verdict.message,
    }  # fmt: skip

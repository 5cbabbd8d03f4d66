"""The CSV file of driver commands, as BOO's driver writes one; and operands of one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from tilesmith.cli.driver_options import OwnOptions
from tilesmith.cli.result_file import write_result
from tilesmith.cli.terminal import complain, csv_text
from tilesmith.compare.each_call import NOT_COMPUTED, CallTimes, time_each_call
from tilesmith.compare.rival import chosen_rivals
from tilesmith.dispatch.launchable import Launchable
from tilesmith.errors import ArgumentError, CommandError
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.problems.work import flops
from tilesmith.targets.target import CudaTarget

UNTIMED, NONE = "untimed", "N.A."  # in place of times, as there
_STATISTICS = ("min", "max", "mean", "stddev", "flops")


@dataclass(frozen=True)
class CsvRow:
    """One direction of one command. ``times`` is empty if no times were asked for, else it has every backend's."""

    name: str
    direction: str
    device: str
    flops: int
    times: dict[str, CallTimes | str]


def csv_row(name: str, direction: str, device: str, launch: Launchable, own: OwnOptions, count: int) -> CsvRow:
    """Times ``count`` calls of ours and of each backend, one by one; 0: none are timed."""
    signature = launch.signature
    if not count:
        return CsvRow(name, direction, device, flops(signature), {})
    asked = signature.canonical if isinstance(launch.target, CudaTarget) else signature
    values = sample_args(asked) if own.splat is None else splat_args(asked, own.splat)
    try:
        rivals = [each for each in _rivals(own.backends, launch) if each.is_here()]
        found = time_each_call(launch, values, rivals, count)
    except ArgumentError as error:
        raise CommandError(str(error).replace("--against", "--reference-backend")) from None
    for backend, times in found.items():
        if isinstance(times, str) and times != NOT_COMPUTED:
            complain(f"warning: {backend}: {times}")
    return CsvRow(name, direction, device, flops(signature), found)


def _rivals(backends: Sequence[str], launch: Launchable) -> Sequence[Any]:
    family = {"onednn": "cpu", "cudnn": "cuda", "cublas": "cuda"}
    wanted = [name for name in backends if family.get(name, launch.target.family) == launch.target.family]
    return chosen_rivals(wanted, launch.target) if wanted else ()


def write_csv(path: str, rows: Sequence[CsvRow], backends: Sequence[str]) -> None:
    """One line for each row: microseconds, and operations a second at the mean time, with the backend's name."""
    shown = [name for name in dict.fromkeys(backends) if any(name in row.times for row in rows) or name == backends[0]]
    devices = any(row.device for row in rows)
    lines = []
    for row in rows:
        line: dict[str, object] = {"name": row.name, "direction": row.direction}
        line |= {"device": row.device} if devices else {}
        line["flops"] = row.flops
        for backend in shown:
            values = _values(row.times.get(backend, NONE) if row.times else UNTIMED, row.flops)
            line |= {f"{backend} {name}": value for name, value in zip(_STATISTICS, values, strict=True)}
        lines.append(line)
    names = ["name", "direction", *["device"] * devices, "flops"]
    text = csv_text(lines, [*names, *(f"{backend} {name}" for backend in shown for name in _STATISTICS)])
    if path == "-":
        click.echo(text, nl=False)
        return
    write_result(path, text)


def _values(times: CallTimes | str, work: int) -> tuple[object, ...]:
    if isinstance(times, str):
        return (UNTIMED if times == UNTIMED else NONE,) * len(_STATISTICS)
    rate = work / times.mean * 1e6
    return (*(round(each, 3) for each in (times.least, times.most, times.mean, times.stddev)), round(rate))


def splat_args(signature: Signature, value: float) -> tuple[Any, ...]:
    """Arguments as ``sample_args`` lays them, whose elements all have one value.

    Raises ``CommandError`` for a value that the element type of an operand does not have.
    """
    arguments = sample_args(signature)
    for each in arguments:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = np.asarray(value).astype(each.dtype)
        whole = np.issubdtype(each.dtype, np.integer)
        if (whole and float(cast) != value) or not np.isfinite(cast.astype(np.float64)):
            raise CommandError(f"--splat-input-value {value:g} is no value of {each.dtype} tensors")
        each[...] = cast
    return arguments

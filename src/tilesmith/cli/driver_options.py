"""The flags among those of a driver command that are not the driver's: Tilesmith's own, and those of BOO's driver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesmith.errors import CommandError, FileFormatError, TargetError
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.detect_cuda import cuda_devices

LEAST_S = 0.1
ALL = "all"
_FLAGS = (
    "--device", "--gpu-id", "--seconds", "--commands-file", "--csv", "--splat-input-value", "--reference-backend",
)  # fmt: skip
# The libraries that BOO's driver calls by other names.
_BACKENDS = {"torch": ("onednn", "cudnn", "cublas"), "inductor": ("torch_compile",)}


@dataclass(frozen=True)
class OwnOptions:
    """The flags that are not the driver's.

    ``devices`` are run one after the other. ``csv`` is a file, or ``-`` for stdout. ``splat`` is the value of every
    element of the operands; None: random data. ``backends`` are the libraries whose times stand beside ours.
    """

    devices: tuple[str, ...] = ("cpu",)
    as_json: bool = False
    seconds: float | None = None
    commands_file: str | None = None
    csv: str | None = None
    splat: float | None = None
    backends: tuple[str, ...] = ()


def own_flags(words: Sequence[str]) -> tuple[list[str], OwnOptions]:
    """Separate the driver's words from the others, which may stand anywhere (the driver has no such names).

    Raises ``CommandError`` for a value that breaks its rule, ``TargetError`` for a device that does not exist.
    """
    given, own, left = [], OwnOptions(), list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word == "--json":
            own = replace(own, as_json=True)
        elif name in _FLAGS and (equals or left):
            own = _with(own, name, value if equals else left.pop(0))
        elif name in _FLAGS:
            raise CommandError(f"flag {name} has no value")
        else:
            given.append(word)
    if own.as_json and own.csv == "-":
        raise CommandError("--json and --csv -: only one of them may be printed; name a file for --csv")
    return given, own


def _with(own: OwnOptions, name: str, value: str) -> OwnOptions:
    if name == "--device":
        return replace(own, devices=_every_gpu("--device all") if value == ALL else (_device(value),))
    if name == "--gpu-id":
        if value == "-1":
            return replace(own, devices=_every_gpu("--gpu-id -1"))
        if not (value.isascii() and value.isdigit() and len(value) < 4):
            raise CommandError(f"--gpu-id {value!r} is not the number of a GPU, or -1 for all of them")
        return replace(own, devices=(f"cuda:{int(value)}",))
    if name == "--seconds":
        return replace(own, seconds=_number(name, value, LEAST_S, f"a number of seconds, {LEAST_S} at least"))
    if name == "--splat-input-value":
        return replace(own, splat=_number(name, value, -math.inf, "a finite number"))
    if name == "--reference-backend":
        return replace(own, backends=(*own.backends, *_BACKENDS.get(value, (value,))))
    if not value:
        raise FileFormatError(f"{name} '': not a file's path")
    return replace(own, commands_file=value) if name == "--commands-file" else replace(own, csv=value)


def _device(name: str) -> str:
    device_ordinal(name)  # one that does not exist is better met before anything is printed
    return name


def _every_gpu(asked: str) -> tuple[str, ...]:
    found = tuple(f"cuda:{each.ordinal}" for each in cuda_devices())
    if not found:
        raise TargetError(f"{asked}: there is no GPU that this process may use (see CUDA_VISIBLE_DEVICES)")
    return found


def _number(name: str, text: str, least: float, rule: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (least <= value and math.isfinite(value)):
        raise CommandError(f"{name} {text!r} is not {rule}")
    return value

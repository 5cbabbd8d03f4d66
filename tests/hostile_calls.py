"""What may be asked of a store with hostile records: each call ends with an answer, or an error of Tilesmith's own."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile_records import put
from tilesmith import CachePopulator, forget, get_launchable
from tilesmith.cli.main import run
from tilesmith.db.exchange import import_file
from tilesmith.db.opening import open_database
from tilesmith.dispatch import locations
from tilesmith.env import FIND_MODES
from tilesmith.errors import TilesmithError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import command_of
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target

SIGNATURE = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
TARGET = host_target(1)
_FITTING = [c for c in candidates(SIGNATURE.canonical, TARGET) if isinstance(c.verdict, Accepted)]
SOLVERS = tuple(candidate.name for candidate in _FITTING)
_FIRST = _FITTING[0]
GOOD: dict[str, Any] = {
    "problem": SIGNATURE.canonical.key(), "target": TARGET.name, "solver": _FIRST.name,
    "config": str(_FIRST.solver.default_config(_FIRST.geometry, TARGET)), "revision": _FIRST.solver.revision,
    "time_us": 12.5, "spread_us": 0.25, "samples": 31, "prepare_us": 2.0, "workspace": 4096, "error": 0.5,
    "bound": 1.0, "status": "ok", "reason": "", "method": "median", "compiler": "gcc 12", "generator": "g",
    "host": "h", "date": "2026-01-02T03:04:05Z", "origin": "tune",
}  # fmt: skip


def ask_everything(rows: list[tuple[Any, ...]], way: str, home: Path) -> list[str]:
    """Put sealed rows where they are met, ask in every mode, and say what was raised that must not be."""
    for number, row in enumerate(rows):
        layers, file = put(row, way, home, "trials" if number % 4 == 3 else "results")
    wrong: list[str] = []

    def ask(what: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except TilesmithError as error:
            if "\n" in str(error):
                wrong.append(f"{what}: a message of several lines: {error!r}")
        except BaseException as error:
            wrong.append(f"{what}: {type(error).__name__}: {error} {traceback.format_exc()}")

    os.environ["TILESMITH_DB_PATH"] = os.pathsep.join(layers)
    if file is not None:
        ask("import", lambda: import_file(file, open_database(layers[-1]), "newest"))
    for mode in FIND_MODES:
        _as_a_new_process()
        ask(f"get_launchable {mode}", lambda mode=mode: repr(get_launchable(SIGNATURE, target=TARGET, mode=mode).trace))
    _as_a_new_process()
    for mode in ("fast", "strict"):
        words = ["explain", command_of(SIGNATURE), "--threads", "1", "--mode", mode]
        ask(f"explain {mode}", lambda words=words: run(words))
        ask(f"explain {mode} --json", lambda words=words: run([*words, "--json"]))
        populator = CachePopulator(commands=[command_of(SIGNATURE)], mode=mode, threads=1, devices=["cpu", ""])
        ask(f"preload {mode}", populator.run)
    for words in (["check"], ["stats"], ["query"], ["query", "--trials", "--json"]):
        ask(f"db {words}", lambda words=words: run(["db", *words]))
    return wrong


def _as_a_new_process() -> None:
    forget()
    for held in (*locations._opened.values(), *(layers for _, layers in locations._read.values())):
        held.close()
    locations._opened.clear()
    locations._read.clear()

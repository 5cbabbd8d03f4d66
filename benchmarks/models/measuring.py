"""One model in one setting: all of its modes built, checked and sampled in turns."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from modes import Mode
from processes import ROOT, Process

from tilesmith.measure.timing import PAUSE_S, summarize

SAMPLE_LIMIT_S = 120.0
PREPARE_LIMIT_S = 300.0
ALONE_LIMIT_S = 600.0
BUILD_S = 120.0  # beyond the time that a search has


@dataclass(frozen=True)
class Cell:
    """One model in one setting: all modes of it are measured together."""

    model: str
    kind: str
    dtype: str
    batch: int
    family: str
    threads: int

    @property
    def key(self) -> dict:
        return {"model": self.model, "kind": self.kind, "dtype": self.dtype, "batch": self.batch}

    @property
    def name(self) -> str:
        return "_".join(str(part) for part in self.key.values())

    @property
    def training(self) -> bool:
        return self.kind == "training"

    def task(self, do: str, **more: object) -> dict:
        return {**self.key, "do": do, "family": self.family, "threads": self.threads, "training": self.training, **more}


class Host:
    """The processes of one cell, and which mode runs in which.

    ``gpu`` is the number of the one that they use. ``inductor`` is where Inductor keeps what it has compiled and timed;
    None: a folder that goes.
    """

    def __init__(
        self, cell: Cell, folder: Path, options: argparse.Namespace, gpu: int | None = None,
        inductor: Path | None = None,
    ) -> None:  # fmt: skip
        self.cell, self.folder, self.options, self.gpu = cell, folder, options, gpu
        self._inductor = inductor / cell.name if inductor else folder / "inductor"
        self.of: dict[str, Process] = {}
        self.shared = cell.family == "cuda" and gpu is None

    def start(self, mode: str, stores: Path | None = None) -> Process:
        if self.shared and self.of:
            return next(iter(self.of.values()))
        return Process(self.log(mode), self.cell.threads, stores, self.compiled(mode), self.gpu)

    def compiled(self, mode: str) -> Path:
        """Inductor's folder for a mode."""
        return self._inductor / mode.replace(" ", "_")

    def log(self, mode: str) -> Path:
        """What the process says that was started for a mode."""
        path = self.folder / "logs" / f"{mode}.txt"
        path.parent.mkdir(exist_ok=True)
        return path

    def build(self, mode: str, stores: Path | None = None) -> dict:
        self.of[mode] = self.start(mode, stores)
        return self.ask(mode, "build", self.options.build_limit, file=str(self.file))

    def ask(self, mode: str, do: str, limit_s: float, **more: object) -> dict:
        return self.of[mode].ask(self.cell.task(do, mode=mode, **more), limit_s)

    @property
    def file(self) -> Path:
        return self.folder / "sample.pt"

    def end(self, mode: str) -> None:
        process = self.of.pop(mode)
        if process not in self.of.values():
            process.end()

    def end_all(self) -> None:
        for mode in list(self.of):
            self.end(mode)


def tuned_stores(options: argparse.Namespace) -> Path | None:
    """Where what ``--tune`` finds is kept; None without it: each process begins from nothing."""
    return ROOT / "build" / "models" / "stores" if options.tune else None


def tune_first(host: Host, options: argparse.Namespace) -> None:
    """Search for the problems of the model, in the first of our modes that is there, in a process of its own."""
    for mode in ("tilesmith backend", "tilesmith.optimize"):
        process = Process(host.log(f"tune, {mode}"), host.cell.threads, tuned_stores(options))
        made = process.ask(host.cell.task("build", mode=mode, file=str(host.file)), options.build_limit)
        if "first_s" in made:
            made = process.ask(host.cell.task("tune", mode=mode, seconds=options.tune), 2 * options.tune + BUILD_S)
        process.end()
        if "seconds" in made:
            print(f"    tuned for {made['seconds']:.0f} s", flush=True)
            return
        print(f"    not tuned in {mode}: {told(made)}", flush=True)


def build_all(host: Host, modes: list[Mode], options: argparse.Namespace) -> dict[str, dict]:
    """Build the step of every mode. Where one ends the process that others share, those are built once more."""
    rows: dict[str, dict] = {}
    while True:
        for mode in modes:
            if mode.name in host.of or "died" in rows.get(mode.name, {}):
                continue
            stores = tuned_stores(options) if mode.ours or host.shared else None
            rows[mode.name] = row = host.build(mode.name, stores)
            print(f"    {mode.name}: {told(row)}", flush=True)
            if "died" in row and host.shared:
                host.end_all()
            elif "first_s" not in row and mode.name in host.of:
                host.of.pop(mode.name) if host.shared else host.end(mode.name)
        lost = [mode for mode in modes if "first_s" in rows[mode.name] and mode.name not in host.of]
        if not lost:
            return rows


def told(row: dict) -> str:
    if "first_s" in row:
        peak = f", {row['peak_mb']:.0f} MB" if "peak_mb" in row else ""  # known once the step is finished
        return f"first result after {row['first_s']:.1f} s, error {row['error']:.1e}{peak}"
    said = "".join(f"\n      {line}" for line in row.get("said", []))
    return next((f"{state}: {row[state]}{said}" for state in ("missing", "failed", "died") if state in row), str(row))


def sample_all(host: Host, rows: dict[str, dict], options: argparse.Namespace) -> None:
    """Rounds of samples; fills ``us``, ``spread_us`` and ``samples_us``."""
    names = [name for name, row in rows.items() if "first_s" in row and name in host.of]
    taken: dict[str, list[dict]] = {name: [] for name in names}
    for turn in range(options.rounds):
        at = turn % max(1, len(names))
        for name in names[at:] + names[:at]:
            if "died" in rows[name]:
                continue
            time.sleep(0.0 if host.shared else PAUSE_S)  # threads of the process before may spin
            found = host.ask(name, "sample", SAMPLE_LIMIT_S)
            if "us" in found:
                taken[name].append(found)
            else:
                rows[name]["died"] = next(iter(found.values()))
    for name, found in taken.items():
        if not found:
            continue
        kept = [each["us"] * 1e-6 for each in found if not each["disturbed"]]
        others = [each["us"] * 1e-6 for each in found if each["disturbed"]]
        timing = summarize(kept, others, "")
        rows[name] |= {
            "us": timing.median_us, "spread_us": timing.spread_us, "disturbed": timing.disturbed,
            "wall_us": statistics.median(each["wall_us"] for each in found),
            "samples_us": [round(each["us"], 2) for each in found],
        }  # fmt: skip


@contextmanager
def quiet(path: Path | None) -> Iterator[Callable[[], None]]:
    """Share a machine with other runs: the caller builds among them, and calls what it is given before it samples.

    All runs hold the file's lock together while they build. One that wants to sample waits until it has the lock alone:
    until no other run builds or samples.
    """
    if path is None:
        yield lambda: None
        return
    with path.open("w") as file:

        def alone() -> None:
            deadline = time.monotonic() + ALONE_LIMIT_S
            fcntl.flock(file, fcntl.LOCK_UN)  # some systems never turn a shared lock into one's own
            while True:
                try:
                    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise SystemExit(f"{path}: other runs held it for {ALONE_LIMIT_S:.0f} s") from None
                    time.sleep(0.1)

        fcntl.flock(file, fcntl.LOCK_SH)
        yield alone


def measure(cell: Cell, modes: list[Mode], options: argparse.Namespace, alone: Callable[[], None]) -> dict[str, dict]:
    """The row of every mode. ``alone`` is called before the first sample."""
    folder = Path(tempfile.mkdtemp(prefix="tilesmith-models-"))
    host = Host(cell, folder, options)
    try:
        maker = Process(host.log("prepare"), cell.threads)
        made = maker.ask(cell.task("prepare", file=str(host.file)), PREPARE_LIMIT_S)
        maker.end()
        if made:
            return {mode.name: made for mode in modes}
        if options.tune and any(mode.ours for mode in modes):
            tune_first(host, options)
        rows = build_all(host, modes, options)
        alone()
        sample_all(host, rows, options)
        return rows
    finally:
        host.end_all()
        keep_logs(folder / "logs", cell)
        shutil.rmtree(folder, ignore_errors=True)


def keep_logs(logs: Path, cell: Cell) -> None:
    """What the processes have said, for who looks for a reason."""
    if logs.exists():
        shutil.copytree(logs, ROOT / "build" / "models" / "logs" / cell.name, dirs_exist_ok=True)

"""First results of whole models: torch.compile and the backend ``tilesmith``, in turn, caches cold.

    python benchmarks/models/first.py                             # six models, fp32, batch 1, with and without freezing
    python benchmarks/models/first.py --models resnet50 --dtypes bf16 --rounds 3 --header here
    python benchmarks/models/first.py --device cuda               # bf16, batch 64, nothing frozen

Seconds from ``torch.compile`` to the first result by the wall clock, and processor seconds of the process with all that
it has started: on a busy machine these say more. Every figure is the smallest of its rounds; each is taken in a fresh
process with empty folders. PyTorch keeps one precompiled header for all programs of a machine outside its cache; with
``--header none`` there is none yet, with ``here`` this machine's is used, if it has one. PyTorch's modes are
``torch.compile(model)`` in ``eval()`` under ``no_grad``, and the same with ``torch._inductor.config.freezing``; ours
have the same setting. ``--json FILE`` keeps all rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
import torch  # noqa: E402
from measuring import PREPARE_LIMIT_S, Cell  # noqa: E402
from processes import Process  # noqa: E402
from zoo import DTYPES, MODELS  # noqa: E402

from tilesmith.measure.host import host_facts  # noqa: E402

PAIRS = {"freezing": ("compile, freezing", "tilesmith backend, freezing"), "plain": ("compile", "tilesmith backend")}
PUBLISHED = ("resnet50", "mobilenet_v3_large", "unet", "convnext_tiny", "super_resolution", "efficientnet_v2_s")
LIMIT_S = 600.0


def first_result(cell: Cell, mode: str, sample: Path, header: str) -> dict:
    """The row of a mode, in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="tilesmith-first-"))
    process = Process(folder / "log", cell.threads, temporary=folder if header == "none" else None)
    try:
        row = process.ask(cell.task("build", mode=mode, file=str(sample), finish=False), LIMIT_S)
    finally:
        process.end()
        shutil.rmtree(folder, ignore_errors=True)
    if "first_s" not in row:
        raise SystemExit(f"{cell.name}, {mode}: {row}")
    return row


def measured(cell: Cell, settings: list[str], rounds: int, header: str) -> dict:
    """All rounds of one model: wall and processor seconds by mode."""
    folder = Path(tempfile.mkdtemp(prefix="tilesmith-first-"))
    try:
        maker, sample = Process(folder / "log", cell.threads), folder / "sample.pt"
        made = maker.ask(cell.task("prepare", file=str(sample)), PREPARE_LIMIT_S)
        maker.end()
        if made:
            raise SystemExit(f"{cell.name}: {made}")
        found: dict = {}
        for turn in range(rounds):
            for setting in settings:
                for mode in PAIRS[setting] if turn % 2 == 0 else PAIRS[setting][::-1]:
                    row = first_result(cell, mode, sample, header)
                    found.setdefault(mode, []).append([round(row["first_s"], 2), round(row["first_cpu_s"], 2)])
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def least(rounds: list[list[float]]) -> tuple[float, float]:
    wall, processor = zip(*rounds, strict=True)
    return min(wall), min(processor)


def shown(cell: Cell, setting: str, found: dict) -> tuple[str, float]:
    """A line of the table, and the ratio of the wall clock."""
    (theirs, their_cpu), (ours, our_cpu) = (least(found[mode]) for mode in PAIRS[setting])
    name = f"{cell.model}, {cell.dtype}, batch {cell.batch}, {setting}"
    figures = (
        f"{theirs:7.1f} {ours:7.1f} {ours / theirs:6.2f} {their_cpu:9.1f} {our_cpu:7.1f} {our_cpu / their_cpu:6.2f}"
    )
    return f"{name:48} {figures}", ours / theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS["cpu"]), default=list(PUBLISHED), metavar="MODEL")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), help="default: fp32; bf16 on a GPU")
    parser.add_argument("--batches", nargs="+", type=int, help="default: 1; 64 on a GPU")
    parser.add_argument("--settings", nargs="+", choices=list(PAIRS), help="default: both; plain on a GPU")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--header", choices=["none", "here"], default="none", help="PyTorch's precompiled header")
    parser.add_argument("--json", type=Path, help="file of results")
    asked = parser.parse_args()
    on_gpu = asked.device == "cuda"
    dtypes, batches = asked.dtypes or ["bf16" if on_gpu else "fp32"], asked.batches or [64 if on_gpu else 1]
    settings = asked.settings or (["plain"] if on_gpu else list(PAIRS))
    print(f"{'':48} {'PyTorch':>7} {'ours':>7} {'ratio':>6} {'processor':>9} {'ours':>7} {'ratio':>6}")
    for setting in settings:  # after this all modules are compiled to bytecode, as in an installation
        measured(Cell("tiny", "inference", dtypes[0], 1, asked.device, asked.threads), [setting], 1, asked.header)
    ratios: dict[str, list[float]] = {}
    rows = []
    for dtype in dtypes:
        for batch in batches:
            for name in asked.models:
                cell = Cell(name, "inference", dtype, batch, asked.device, asked.threads)
                found = measured(cell, settings, asked.rounds, asked.header)
                rows.append({**cell.key, "rounds": found, "load": os.getloadavg()[0]})
                for setting in settings:
                    line, ratio = shown(cell, setting, found)
                    ratios.setdefault(setting, []).append(ratio)
                    print(line, flush=True)
    for setting, each in ratios.items():
        geomean = math.exp(sum(map(math.log, each)) / len(each))
        print(f"{setting}: geometric mean {geomean:.2f}, {min(each):.2f} to {max(each):.2f}")
    if asked.json is not None:
        facts = {
            "host": host_facts("").name, "gpu": torch.cuda.get_device_name() if on_gpu else "",
            "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__,
            "header": asked.header, "command": " ".join(["python", *sys.argv]),
        }  # fmt: skip
        asked.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

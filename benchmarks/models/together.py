"""Several models at once on the GPUs of one machine, for where time is short: all modes are built side by side.

    python benchmarks/models/together.py --kinds training --limit 480 --out training.json
    python benchmarks/models/together.py --models unet resnet50 --modes eager "tilesmith backend" --out two.json
    python benchmarks/models/together.py --kinds inference --limit 300 --out inference.json --modes eager compile \
        "compile, reduce-overhead" "compile, max-autotune" tilesmith.optimize "tilesmith backend" "optimize + compile"

Each mode of each model has a process of its own. Models whose compilation takes longest begin first, on the GPUs in
turn; so do modes that choose kernels by timing them, of which one at a time uses a GPU for that. Once all modes of a
model are built, or the time for building is over, they are sampled as ``run.py`` samples them: in rounds, while every
other process on that GPU is stopped. The results of a model are written as soon as they are there: added to those that
the file holds. ``first_s`` is that of a busy machine: stops and neighbours count. max-autotune takes minutes, so it is
measured with one model on each GPU (TORCHINDUCTOR_COMPILE_THREADS=16, 16 cores a GPU), and few modes beside it. What
was not built in time tells where it was (``said``); with --inductor the same command goes on there:

    python benchmarks/models/together.py --kinds inference --limit 560 --out inference.json --inductor build/inductor \
        --models resnet50 unet --modes eager compile "compile, max-autotune" "tilesmith backend" "optimize + compile"
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
import results  # noqa: E402
import torch  # noqa: E402
from measuring import PREPARE_LIMIT_S, Cell, Host, keep_logs, sample_all, told  # noqa: E402
from modes import MODES, Mode, mode_named  # noqa: E402
from zoo import DTYPES, MODELS, batch_of  # noqa: E402

# By the time that a training step takes to compile, the longest first.
SLOWEST_FIRST = (
    "efficientnet_v2_s", "mobilenet_v3_large", "convnext_tiny", "resnet50", "vae_decoder", "r3d_18", "unet",
    "super_resolution", "tiny",
)  # fmt: skip
USUAL = ("eager", "compile", "tilesmith.optimize", "tilesmith backend")
PREPARE = "prepare"
SAMPLING_S = 10.0  # of one model, which building leaves for it
FINISH_LIMIT_S = 60.0
SETTLE_S = 0.5  # until kernels of stopped processes have left the device


class Device:
    """One GPU, and the hosts that use it. Whoever samples has it alone."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.hosts: list[Host] = []
        self._alone = threading.Lock()  # held while a process starts, and while a model is sampled

    def start(self, host: Host, name: str) -> None:
        """Start the process of a mode, or the one that makes the sample."""
        with self._alone:
            if host not in self.hosts:
                self.hosts.append(host)
            host.of[name] = process = host.start(name)
            process.extra_s = 0.0  # limits are those of the whole run here

    def sample(self, host: Host, rows: dict[str, dict], options: argparse.Namespace) -> float:
        """Finish and sample the modes that are built while everything else here stands still; the seconds it took."""
        with self._alone:
            begin = time.monotonic()
            others = [process for each in self.hosts if each is not host for process in list(each.of.values())]
            for process in others:
                process.pause(True)
            try:
                time.sleep(SETTLE_S)
                for name in [name for name, row in rows.items() if "first_s" in row]:
                    rows[name] |= host.ask(name, "finish", FINISH_LIMIT_S)
                sample_all(host, {name: row for name, row in rows.items() if "peak_mb" in row}, options)
            finally:
                for process in others:
                    process.pause(False)
            return time.monotonic() - begin


def measured(cell: Cell, modes: list[Mode], device: Device, options: argparse.Namespace) -> dict[str, dict]:
    """The row of every mode."""
    folder = Path(tempfile.mkdtemp(prefix="tilesmith-models-"))
    host = Host(cell, folder, options, device.number, options.inductor)
    lock, timing = (str(options.folder / f"{what}{device.number}.lock") for what in ("answer", "timing"))
    try:
        device.start(host, PREPARE)
        made = host.ask(PREPARE, "prepare", PREPARE_LIMIT_S, file=str(host.file), lock=lock)
        host.end(PREPARE)
        if made:
            return {mode.name: made for mode in modes}
        say(cell, "prepared")

        def built(mode: Mode) -> dict:
            goes_on = {"goes_on": True} if host.compiled(mode.name).exists() else {}
            device.start(host, mode.name)
            left_s = max(1.0, options.built_by - time.monotonic())
            row = host.ask(mode.name, "build", left_s, file=str(host.file), finish=False, timing=timing)
            say(cell, f"{mode.name}: {told(row)}")
            return row | goes_on

        slowest = sorted(modes, key=lambda mode: not mode.autotunes)
        with ThreadPoolExecutor(len(modes)) as pool:
            found = dict(zip([mode.name for mode in slowest], pool.map(built, slowest), strict=True))
        rows = {mode.name: found[mode.name] for mode in modes}
        say(cell, f"sampled in {device.sample(host, rows, options):.1f} s")
        return rows
    finally:
        host.end_all()
        keep_logs(folder / "logs", cell)
        shutil.rmtree(folder, ignore_errors=True)


def say(cell: Cell, text: str) -> None:
    print(f"{time.monotonic() - _began:6.1f} s  {cell.model}, {cell.kind}: {text}", flush=True)


_began = time.monotonic()


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=SLOWEST_FIRST, default=list(MODELS["cuda"]), metavar="MODEL")
    parser.add_argument("--modes", nargs="+", choices=[mode.name for mode in MODES], default=list(USUAL),
                        metavar="MODE")  # fmt: skip
    parser.add_argument("--kinds", nargs="+", choices=["inference", "training"], default=["training"])
    parser.add_argument("--dtype", choices=list(DTYPES), default="bf16")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7, help="samples of each mode")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--gpus", type=int, default=0, help="how many are used; 0: all of them")
    parser.add_argument("--at-once", type=int, default=8, help="models at once on one GPU")
    parser.add_argument("--limit", type=float, default=480.0, metavar="SECONDS", help="after which nothing runs")
    parser.add_argument("--threads", type=int, default=4, help="of each process")
    parser.add_argument("--inductor", type=Path, metavar="FOLDER",
                        help="Inductor's caches stay there, and the same command goes on with them")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="the file of results")
    return parser.parse_args(words)


def all_commands(path: Path, words: list[str]) -> str:
    """This command behind those that made what the file holds."""
    held = json.loads(path.read_text())["machine"]["command"].split("; ") if path.exists() else []
    return "; ".join(dict.fromkeys([*held, " ".join(["together.py", *words])]))


def main(words: list[str]) -> int:
    options = parsed(words)
    gpus = options.gpus or (torch.cuda.device_count() if options.device == "cuda" else 1)
    devices = [Device(number) for number in range(gpus)]
    known, modes = MODELS[options.device], [mode_named(name) for name in options.modes]
    cells = [
        Cell(name, kind, options.dtype,
             batch_of(known[name], options.batch, kind == "training") if name in known else options.batch,
             options.device, options.threads)
        for name in SLOWEST_FIRST if name in options.models for kind in options.kinds
    ]  # fmt: skip
    later = SAMPLING_S * -(-len(cells) // gpus)
    options.built_by = time.monotonic() + max(options.limit - later, options.limit / 2)
    options.folder = Path(tempfile.mkdtemp(prefix="tilesmith-models-"))
    # Each process has a pool of so many to compile Triton's kernels; the default is one for each core.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "8")
    data = results.load(options.out, options.device, options.threads, all_commands(options.out, words))
    writing, failed = threading.Lock(), []

    def run(number: int, cell: Cell) -> None:
        taken = [mode for mode in modes if mode.takes(cell.model, cell.family, cell.training)]
        rows = measured(cell, taken, devices[number % gpus], options)
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with writing:
            results.add(data, cell.key, {name: row | {"date": stamp} for name, row in rows.items()})
            results.write(options.out, data)
            print(results.told(cell.key, results.rows_of(data, cell.key)), flush=True)
        failed.extend(name for name, row in rows.items() if "us" not in row)

    with ThreadPoolExecutor(min(len(cells), options.at_once * gpus)) as pool:
        for future in [pool.submit(run, number, cell) for number, cell in enumerate(cells)]:
            future.result()
    shutil.rmtree(options.folder, ignore_errors=True)
    for mode in options.modes:
        ratios = [ratio for cell in data["cells"] if (ratio := results.speed_up(cell["rows"], mode))]
        if mode in results.OURS and ratios:
            told_ = f"geomean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}"
            print(f"{mode}: {told_} of {len(ratios)} models, against PyTorch's fastest mode")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The first call of a model in a new process that finds all that an earlier one kept: eager, and each of our modes.

    python benchmarks/models/remembered.py [--models resnet50 ...] [--modes MODE ...] [--rounds 5] [--device cpu|cuda]
                                           [--batch N] [--dtype fp32|bf16] [--limit 300] [--time-limit S]
                                           [--profile LINES]

Two processes of each mode run the model first, in folders that begin empty: the second one keeps what it found in the
databases. Then new processes of all modes run it in turns, channels last: on a CPU one image in fp32, on a GPU 64 in
bf16, unless others are asked for. The clock starts behind ``import torch``, the making of the model and its way to the
device, and stops with the first result: importing Tilesmith and ``optimize``, or
``torch.compile``, count. ``s`` is wall time, ``CPU s`` is the time of all threads and of all programs that were
started, which a busy machine changes less: medians, with the least in brackets. ``programs`` started are compilers and
Inductor's workers; ``files`` are those that were written into Tilesmith's folders (a measurement writes one).

What each process took is told on standard error. A process that takes longer than ``--limit`` tells where each of its
threads is, and ends; its mode has no times then. Behind ``--time-limit`` no round begins. ``--profile`` has one more
process of each mode profiled, which makes it slower, and prints where its main thread spent the most.
"""

from __future__ import annotations

import argparse
import cProfile
import faulthandler
import json
import os
import pstats
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
MODES = ("eager", "tilesmith.optimize", "compile", "tilesmith backend")
FILLING = 2


def first_call(options: argparse.Namespace) -> dict:
    """What the first call costs in this process."""
    import torch
    from modes import mode_named
    from zoo import MODELS, VISION, make_sample, torchvision_package

    torch.set_num_threads(options.threads)
    if options.child in VISION:
        torchvision_package()  # it imports TorchDynamo
    assert options.child in MODELS["cpu"] or options.child == "tiny"
    sample = make_sample(options.child, options.device, options.batch, options.dtype)
    order = torch.channels_last_3d if sample.x.dim() == 5 else torch.channels_last
    model, x = (each.to(options.device).to(memory_format=order) for each in (sample.model.eval(), sample.x))
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    wait()
    assert "tilesmith" not in sys.modules  # its import counts
    mode, programs = mode_named(options.modes[0]), []
    sys.addaudithook(lambda event, args: programs.append(str(args[0])) if event == "subprocess.Popen" else None)
    profiler = cProfile.Profile() if options.profile else nullcontext()
    begin, used = time.perf_counter(), cpu_s()
    with profiler, torch.no_grad(), mode.settings():
        mode.apply(model)(x)
        wait()
    seconds = time.perf_counter() - begin
    spent = cpu_s() - used
    if isinstance(profiler, cProfile.Profile):
        for order in ("cumulative", "tottime"):
            pstats.Stats(profiler, stream=sys.stderr).sort_stats(order).print_stats(options.profile)
    return {"s": seconds, "cpu_s": spent, "programs": len(programs)}


def cpu_s() -> float:
    """Seconds of all threads of this process, and of the programs that it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def run(model: str, mode: str, stores: Path, options: argparse.Namespace, profile: int = 0) -> dict | None:
    """What the first call costs in a new process with these folders, and how many files it writes there.

    None if the process has failed, or has been too late; it has said why on standard error.
    """
    before = files_of(stores)
    words = [
        sys.executable, str(Path(__file__)), "--child", model, "--modes", mode, "--batch", str(options.batch),
        "--threads", str(options.threads), "--device", options.device, "--dtype", options.dtype,
        "--limit", str(options.limit), "--profile", str(profile),
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH")))),
        "TORCHINDUCTOR_CACHE_DIR": str(stores / "inductor"), "TILESMITH_CACHE_DIR": str(stores / "tilesmith"),
        "TILESMITH_DB_PATH": str(stores / "tilesmith" / "tilesmith.db"), "OMP_NUM_THREADS": str(options.threads),
        "TILESMITH_NUM_THREADS": str(options.threads), "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(stores / "bytecode")),
    }  # fmt: skip
    begin = time.perf_counter()
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    took = time.perf_counter() - begin
    if done.returncode:
        tell(f"{model}, {mode}: ended with {done.returncode} after {took:.1f} s")
        return None
    row = json.loads(done.stdout.splitlines()[-1]) | {"files": len(files_of(stores) - before)}
    tell(f"{model}, {mode}: first result after {row['s']:.2f} s, process {took:.1f} s, {row['programs']} programs")
    return row


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def files_of(stores: Path) -> set[tuple[str, int]]:
    """The files of Tilesmith's folders, with their times."""
    found = [path for path in (stores / "tilesmith").rglob("*") if path.is_file() and "staging" not in path.parts]
    return {(str(path), path.stat().st_mtime_ns) for path in found}


def measured(model: str, options: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """The costs of each mode, in rounds; a mode of which a process ended without a result has none."""
    places = {mode: folder / mode.replace(" ", "_") for mode in options.modes}
    rows: dict[str, list[dict]] = {
        mode: [] for mode in options.modes if all(run(model, mode, places[mode], options) for _ in range(FILLING))
    }
    for _ in range(options.rounds):
        if time.monotonic() > options.ends:
            tell(f"{model}: no further round")
            break
        for mode in list(rows):
            row = run(model, mode, places[mode], options)
            if row is None:
                del rows[mode]
            else:
                rows[mode].append(row)
    for mode in rows if options.profile else ():
        run(model, mode, places[mode], options, options.profile)
    return {mode: found for mode, found in rows.items() if found}


def line_of(mode: str, rows: list[dict]) -> str:
    cells = [mode]
    for name in ("s", "cpu_s"):
        times = [row[name] for row in rows]
        cells.append(f"{statistics.median(times):.2f} ({min(times):.2f})")
    return f"| {' | '.join([*cells, *(str(max(row[name] for row in rows)) for name in ('programs', 'files'))])} |"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["resnet50"])
    parser.add_argument("--modes", nargs="+", default=list(MODES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--dtype", choices=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds until a process must have ended")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no round begins")
    parser.add_argument("--profile", metavar="LINES", type=int, default=0, help="functions of a profile to print")
    parser.add_argument("--child", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    usual = {"cpu": (1, "fp32"), "cuda": (64, "bf16")}[options.device]
    options.batch, options.dtype = options.batch or usual[0], options.dtype or usual[1]
    options.ends = time.monotonic() + options.time_limit
    if options.child:
        faulthandler.dump_traceback_later(options.limit, exit=True)
        print(json.dumps(first_call(options)))
        return 0
    whole = True
    for model in options.models:
        folder = Path(tempfile.mkdtemp(prefix="tilesmith-remembered-"))
        try:
            rows = measured(model, options, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"\n{model}, {options.device}, {options.dtype}, batch {options.batch}, {options.threads} threads\n")
        print("| mode | s | CPU s | programs | files |\n|---|---:|---:|---:|---:|")
        print("\n".join(line_of(mode, found) for mode, found in rows.items()), flush=True)
        whole = whole and len(rows) == len(options.modes)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Irregular convolutions: kernels that changed, ratios in other dtypes, timings for a card's constants.

    python benchmarks/gpu/probes/irregular.py changed|halves|fp32|sooner|fit [--out FOLDER] [--seconds S] [--devices N]

changed `configs.py` on `deconv`, on the problems of `irregular_random` that the phases kernels take, and on backward
        weights of channels that are no multiples of 8.
halves  `configs.py` in fp16 beside bf16: each second problem of `grouped`, each twelfth of `irregular_random`; in fp16
        each second of `deconv`.
fp32    `configs.py` on `grouped` in fp32: depthwise and groups.
sooner  `sooner.py` on the committed files of `deconv` and `grouped`.
fit     `training.py` on problems that `training_random.py` draws with a seed of this probe's own, `configs.py` on each
        second problem of `networks` and on `gemm_llm`: for
        benchmarks/fit.py fit.jsonl --target sm_90a:132:CARD --card CARD --write NAME

Of each, everything compiles at once, and one command at a time uses a device. With N devices (default: all that the
driver shows) each command's problems are dealt out among them; `fit` draws N times as many. After S seconds none goes
on. Prints the last lines of each command, and writes FOLDER/WHAT.jsonl and FOLDER/WHAT.log.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src"), str(HERE)]
from configs import problems_of  # noqa: E402
from workers import environment  # noqa: E402

from tilesmith.targets.detect_cuda import cuda_devices  # noqa: E402

RESULTS = HERE.parents[1] / "results"
SEED = "11"
# Backward weights with steps of 2 (images, side, channels, results).
WEIGHTS = ((4, 180, 20, 70), (16, 112, 36, 72), (32, 56, 28, 56), (8, 96, 12, 44))
PHASES = ("mma_phases", "wgmma_phases")
Command = tuple[str, list[str]]


def weights(folder: Path) -> str:
    path = folder / "weights.keys"
    keys = (
        f"conv1;wrw;x=bf16,NHWC,{n}x{side}x{side}x{c};w=bf16,NHWC,{k}x3x3x{c};y=bf16,NHWC;stride=2x2;pad=1x1;dil=1x1;"
        "groups=1;acc=fp32"
        for n, side, c, k in WEIGHTS
    )
    path.write_text("\n".join(keys) + "\n")
    return str(path)


def commands(what: str, folder: Path, devices: int) -> list[Command]:
    """Names of commands, and their words."""
    few = ["--configs", "1", "--hopeless", "1.4", "--seconds", "0.1", "--limit", "30"]
    more = ["--configs", "3", "--hopeless", "2", "--seconds", "0.1", "--limit", "40"]
    if what == "changed":
        return [
            ("weights", ["configs.py", weights(folder), *more]),
            ("deconv", ["configs.py", "deconv", "--hopeless", "1.6", *more[:2], *more[4:]]),
            ("phases", ["configs.py", "irregular_random", "--solver", *PHASES, *more]),
        ]
    if what == "halves":
        halves = (("grouped", "2"), ("irregular_random", "12"))
        found = [
            (f"{name} {dtype}", ["configs.py", name, "--every", every, "--dtype", dtype, *few])
            for name, every in halves
            for dtype in ("bf16", "fp16")
        ]
        return [*found, ("deconv fp16", ["configs.py", "deconv", "--every", "2", "--dtype", "fp16", *few])]
    if what == "fp32":
        return [("grouped fp32", ["configs.py", "grouped", "--dtype", "fp32", *few[:-1], "55"])]
    if what == "sooner":
        files = [str(RESULTS / f"gpu_{name}_h200.jsonl") for name in ("deconv", "grouped")]
        return [("sooner", ["sooner.py", *files, "--limit", "60"])]
    problems = folder / "training.txt"
    drawing = [sys.executable, str(HERE.parents[1] / "training_random.py"), "--seed", SEED, "--each", str(3 * devices)]
    problems.write_text(subprocess.run(drawing, check=True, capture_output=True, text=True).stdout)
    dense = ["--configs", "2", "--hopeless", "1.5", "--seconds", "0.1", "--limit", "25"]
    return [
        ("networks", ["configs.py", "networks", "--every", "2", *dense]),
        ("gemm_llm", ["configs.py", "gemm_llm", *dense]),
        ("training", ["training.py", str(problems), "--picks", "3", "--compile", "90", "--limit", "60"]),
    ]


def dealt(command: Command, folder: Path, devices: int) -> list[Command]:
    """The command for each device, with its share of the problems; one of committed result files is for the first."""
    name, (script, problems, *words) = command
    if devices == 1 or problems.endswith(".jsonl"):
        return [command]
    every = int(words[words.index("--every") + 1]) if "--every" in words else 1
    if "--every" in words:
        del words[words.index("--every") : words.index("--every") + 2]
    keys, found = list(problems_of(problems, every=every)), []
    for device in range(devices):
        path = folder / f"{name}_{device}.keys"
        path.write_text("\n".join(keys[device::devices]) + "\n")
        found.append((f"{name} {device}", [script, str(path), *words]))
    return found[: len(keys)]


def run(command: Command, device: int, devices: int, folder: Path, seconds: float) -> tuple[str, str, str]:
    """The command's name, its output, and the lines of its result file."""
    name, words = command
    log, result = folder / f"{name}.log", folder / f"{name}.jsonl"
    own = environment(device, devices)
    lock = [] if words[0] == "sooner.py" else ["--lock", str(folder / f"device_{device}.lock")]
    with log.open("w") as out:
        try:
            subprocess.run(
                [sys.executable, str(HERE / words[0]), *words[1:], *lock, "--out", str(result)], env=own,
                stdout=out, stderr=subprocess.STDOUT, timeout=seconds, check=False,
                preexec_fn=lambda: os.sched_setaffinity(0, map(int, own["WORKER_CORES"].split(","))),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            out.write("ended by the limit of all\n")
    return name, log.read_text(), result.read_text() if result.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("changed", "halves", "fp32", "sooner", "fit"))
    parser.add_argument("--out", type=Path, default=Path("irregular"))
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--devices", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    devices, rows, logs = args.devices or len(cuda_devices()), "", ""
    with TemporaryDirectory() as made:
        folder = Path(made)
        shares = [
            (share, device)
            for command in commands(args.what, folder, devices)
            for device, share in enumerate(dealt(command, folder, devices))
        ]
        with ThreadPoolExecutor(len(shares)) as pool:
            ran = pool.map(lambda each: run(*each, devices, folder, args.seconds), shares)
            for name, log, result in ran:
                lines = log.splitlines()
                wrong = [line for line in lines if "WRONG" in line or "FAILED" in line]
                print("\n".join([f"== {name}", *wrong, *lines[-6:]]), flush=True)
                rows, logs = rows + result, f"{logs}== {name}\n{log}"
    (args.out / f"{args.what}.jsonl").write_text(rows)
    (args.out / f"{args.what}.log").write_text(logs)
    return 0


if __name__ == "__main__":
    sys.exit(main())

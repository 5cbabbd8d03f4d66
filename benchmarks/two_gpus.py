"""How much faster `tilesmith tune LIST --device all` is than one GPU of the same machine.

    python benchmarks/two_gpus.py [--list resnet50] [--every 1] [--trials 8] [--seconds 4] [--time-limit 280]
                                  [--least 1.85] [--json FILE]

Both commands search every Nth problem of the list with the same budget (`--trials`, 0: no limit; `--seconds`), each
with an empty database, an empty cache of kernels and an empty folder for workers. A search of one small problem comes
first, so that neither command is the one that reads Python and NVRTC from the disk. `--device all` runs first. Whatever
`--time-limit` leaves is for one GPU; if that does not suffice, the command is stopped, and the ratio is a lower bound
that is printed as such.

Prints seconds, trials, the answers' times on one GPU over those on all, and the ratio of the seconds. Exits with 1 if
the ratio is below `--least`, or a problem has no answer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean, median

from tilesmith.measure.host import host_facts
from tilesmith.targets.detect_cuda import cuda_devices

PROBLEMS = Path(__file__).parent / "problems"
STOP_S = 15.0  # for a command that was interrupted to end by itself
DRIVER = "TILESMITH_LIBCUDA"  # the one setting that both commands inherit
SMALL = ("gemmfp16", "--a_h", "256", "--a_w", "256", "--b_w", "256")


def tuned(words: list[str], device: str, limit_s: float) -> dict:
    """One `tilesmith tune` with folders of its own; interrupted after ``limit_s`` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_") or name == DRIVER
        }
        own = {"TILESMITH_CACHE_DIR": "cache", "TILESMITH_DB_PATH": "tuned.db", "TILESMITH_FLEET_DIR": "fleet"}
        environment = kept | {name: os.path.join(folder, value) for name, value in own.items()}
        with open(Path(folder, "rows"), "w+b") as rows, open(Path(folder, "told"), "w+b") as told:
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-m", "tilesmith", "tune", *words, "--device", device, "--json"],
                stdout=rows, stderr=told, env=environment, start_new_session=True,
            )  # fmt: skip
            cut = not ended(process, limit_s)
            wall_s = time.monotonic() - began
            if cut:
                process.send_signal(signal.SIGINT)
                if not ended(process, STOP_S):
                    process.kill()
                    process.wait()
            rows.seek(0)
            told.seek(0)
            found = [json.loads(line) for line in rows.read().splitlines() if line.startswith(b"{")]
            said = told.read().decode(errors="replace")
    return {
        "device": device, "wall_s": round(wall_s, 2), "cut": cut, "status": process.returncode,
        "searches_s": round(sum(row["seconds"] for row in found), 2), "trials": sum(row["new_trials"] for row in found),
        "failed": sum(row["failed"] for row in found), "ended": dict(Counter(row["ended"] for row in found)),
        "time_us": {row["key"]: row["time_us"] for row in found}, "seconds": [row["seconds"] for row in found],
        "error": said[-600:] if process.returncode and not cut else "",
    }  # fmt: skip


def ended(process: subprocess.Popen, limit_s: float) -> bool:
    try:
        process.wait(max(0.1, limit_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def every_nth(name: str, every: int) -> list[str]:
    """Every Nth command of a list; each of resnet50 is one problem."""
    lines = (line.partition("#")[0].strip() for line in (PROBLEMS / f"{name}.txt").read_text().splitlines())
    return [line for line in lines if line][::every]


def told(each: dict) -> str:
    name = "every GPU" if each["device"] == "all" else "one GPU"
    cut = ", stopped there" if each["cut"] else ""
    per = f", {median(each['seconds']):.2f} s each" if each["seconds"] else ""
    return (
        f"{name}: {len(each['time_us'])} problems in {each['wall_s']:.1f} s{cut} (searches {each['searches_s']:.1f} s"
        f"{per}); {each['trials']} trials, {each['failed']} failed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", default="resnet50", help="a list of benchmarks/problems")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--trials", type=int, default=8, help="budget of a problem; 0: no limit")
    parser.add_argument("--seconds", type=float, default=4.0, help="budget of a problem")
    parser.add_argument("--time-limit", type=float, default=280.0, help="seconds of everything")
    parser.add_argument("--least", type=float, default=1.85)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    ends = time.monotonic() + given.time_limit - STOP_S / 3
    commands = every_nth(given.list, given.every)
    devices = cuda_devices()
    facts = host_facts("", devices[0])
    print(f"{len(devices)} x {facts.gpu}, driver {facts.driver}, {facts.cores} cores", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listing:
        listing.write("".join(f"{command}\n" for command in commands))
        listing.flush()
        budget = ["--seconds", f"{given.seconds:g}", *(["--trials", str(given.trials)] if given.trials else [])]
        tuned([*SMALL, "--seconds", "1"], "cuda:0", 60.0)
        every = tuned([listing.name, *budget], "all", ends - time.monotonic())
        print(told(every), flush=True)
        # One GPU would else be timed with PyTorch beside it, which all GPUs are not.
        one = tuned([listing.name, *budget, "--against", "none"], "cuda:0", ends - time.monotonic())
    print(told(one))
    wanted, both = len(commands), sorted(every["time_us"].keys() & one["time_us"].keys())
    ratio = one["wall_s"] / every["wall_s"]
    answers = geometric_mean([one["time_us"][key] / every["time_us"][key] for key in both]) if both else None
    if answers is not None:
        print(f"times of the answers, one GPU over all: {answers:.4f} ({len(both)} problems)")
    print(f"ratio of the seconds: {'at least ' if one['cut'] else ''}{ratio:.3f}")
    for each in (every, one):
        if each["error"]:
            print(each["error"])
    command = f"--list {given.list} --every {given.every} --trials {given.trials} --seconds {given.seconds:g}"
    if given.json is not None:
        given.json.write_text(
            json.dumps(
                {
                    "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "command": command,
                    "gpu": facts.gpu, "driver": facts.driver, "gpus": len(devices), "cores": facts.cores,
                    "problems": wanted, "ratio": round(ratio, 4),
                    "lower_bound": one["cut"], "answers_one_over_all": answers, "every": every, "one": one,
                },
                indent=1,
            ) + "\n"
        )  # fmt: skip
    complete = len(every["time_us"]) == wanted and (one["cut"] or len(one["time_us"]) == wanted)
    if not complete:
        print(f"of {wanted} problems some have no answer")
    return 0 if complete and not every["cut"] and ratio >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())

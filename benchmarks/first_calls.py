"""What new shapes cost in each mode: the first calls of 12 new sizes, each mode in a fresh process with empty folders.

    python benchmarks/first_calls.py [--json benchmarks/results/first_calls_cpu.json] [--device cuda]

The sizes are those of a layer whose images have 12 heights, as with inputs of any size. ``background`` runs twice: in a
process that then waits (``idle``), and in one that goes on calling all 12 (``busy``), where a measurement and the calls
slow each other; the time of a round over the 12 is told while problems are measured and afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHILD = """
import json, statistics, sys, time
import torch
torch.set_num_threads({threads})
import tilesmith
from tilesmith.dispatch.background import jobs as background
mode, busy, device = {mode!r}, {busy!r}, {device!r}
layout = torch.channels_last
xs = [torch.randn(1, 64, 20 + 3 * i, 40, device=device).to(memory_format=layout) for i in range(12)]
w = torch.randn(64, 64, 3, 3, device=device).to(memory_format=layout)
done = torch.cuda.synchronize if device != "cpu" else lambda: None
tilesmith.conv(xs[0][:, :, :8].contiguous(memory_format=layout), w, mode="fast")
done()
def round_of_calls():
    begin = time.perf_counter()
    for x in xs:
        tilesmith.conv(x, w, padding=1, mode=mode)
    done()
    return time.perf_counter() - begin
first = []
for x in xs:
    begin = time.perf_counter()
    tilesmith.conv(x, w, padding=1, mode=mode)
    done()
    first.append(time.perf_counter() - begin)
begin = time.perf_counter()
during = [round_of_calls()] if busy else []
while busy and not background.wait_until_done(0.0) and time.perf_counter() - begin < 400:
    during.append(round_of_calls())
settled = background.wait_until_done(400)
waited = time.perf_counter() - begin
after = [round_of_calls() for _ in range(200)][100:]
print(json.dumps(dict(first=first, settled=settled, waited=waited, during=during, after=after)))
"""
RUNS = (("hybrid", False), ("fast", False), ("background", False), ("background", True))


def measured(mode: str, busy: bool, device: str, threads: int) -> dict[str, object]:
    """One fresh process whose home is empty: seconds of the first calls, and what followed."""
    with tempfile.TemporaryDirectory() as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TILESMITH_", "XDG_"))}
        text = CHILD.format(mode=mode, busy=busy, device=device, threads=threads)
        out = subprocess.check_output([sys.executable, "-c", text], env={**kept, "HOME": home}, text=True)
    found = json.loads(out)
    return {
        "mode": mode, "afterwards": "busy" if busy else "idle", "first_s": found["first"],
        "total_s": sum(found["first"]), "settled": found["settled"],
        "settled_after_s": found["waited"] if mode == "background" else None,
        "round_during_ms": statistics.median(found["during"]) * 1e3 if found["during"] else None,
        "round_after_ms": statistics.median(found["after"]) * 1e3,
    }  # fmt: skip


def shown(row: dict[str, object]) -> str:
    first = row["first_s"]
    settled, during = row["settled_after_s"], row["round_during_ms"]
    return (
        f"{row['mode']:>10} {row['afterwards']:>5} {statistics.median(first):8.3f} {max(first):8.3f} "
        f"{row['total_s']:8.2f} {'-' if settled is None else f'{settled:.1f}':>8} "
        f"{'-' if during is None else f'{during:.2f}':>10} {row['round_after_ms']:10.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="file of results")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of PyTorch")
    options = parser.parse_args()
    from tilesmith.measure.host import host_facts

    print(
        f"{'mode':>10} {'then':>5} {'median s':>8} {'max s':>8} {'total s':>8} {'settled':>8} {'during ms':>10} ",
        end="",
    )
    print(f"{'after ms':>10}   (load {os.getloadavg()[0]:.1f})")
    rows = []
    for mode, busy in RUNS:
        rows.append(measured(mode, busy, options.device, options.threads))
        print(shown(rows[-1]), flush=True)
    if options.json is not None:
        facts = {
            "host": host_facts("").name, "date": time.strftime("%Y-%m-%d"), "device": options.device,
            "load": os.getloadavg()[0], "command": " ".join(["python", *sys.argv]),
        }  # fmt: skip
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

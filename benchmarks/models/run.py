"""Whole models, in inference and in training: PyTorch's modes and ours, measured alike.

    python benchmarks/models/run.py                                   # inference, fp32, batch 1 and 8 (GPU: bf16, 64)
    python benchmarks/models/run.py --models resnet50 unet --dtypes fp32 bf16 --batches 1 8 --threads 2
    python benchmarks/models/run.py --kinds inference training --time-limit 560      # goes on where it was stopped
    python benchmarks/models/run.py --modes "compile, freezing" "tilesmith backend, freezing" --again
    python benchmarks/models/run.py --table                           # only writes docs/benchmarks-models.md anew

The device is the first GPU, or the processor with ``--device cpu``. Every model's results are written into
benchmarks/results/models_<machine>.json as soon as they are there, and what is there is not measured again
(``--again`` does). A mode that crashes, or takes longer than its deadline, costs itself alone.

Method: weights and data are random and the same in every mode; each result is compared with float64's. On a processor
each mode has a process of its own; a round takes one sample of each mode, in an order that rotates
(src/tilesmith/measure/timing.py). On a GPU all modes of a model share a process, and a sample is a row of replays of
one CUDA graph of the whole step, which the benchmark captures; modes that make graphs themselves are called instead.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
import results  # noqa: E402
import torch  # noqa: E402
from measuring import Cell, measure, quiet  # noqa: E402
from modes import MODES, Mode, mode_named  # noqa: E402
from zoo import DTYPES, MODELS, batch_of  # noqa: E402

KINDS = ("inference", "training")
LEAST_S = 30.0  # of the time limit, to begin a model


def cells_of(options: argparse.Namespace) -> list[Cell]:
    known = MODELS[options.device]
    return [
        Cell(name, kind, dtype, batch_of(known[name], batch, kind == "training") if name in known else batch,
             options.device, options.threads)
        for kind in options.kinds for dtype in options.dtypes for batch in options.batches for name in options.models
    ]  # fmt: skip


def chosen_modes(cell: Cell, options: argparse.Namespace, held: dict) -> list[Mode]:
    """The modes that are asked for and have no time yet."""
    asked = [mode_named(name) for name in options.modes] if options.modes else MODES
    taken = [mode for mode in asked if mode.takes(cell.model, cell.family, cell.training)]
    if options.again or any("us" not in held.get(mode.name, {}) for mode in taken):
        return taken  # all of them: a ratio is taken from times of the same rounds
    return []


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*MODELS["cpu"], "tiny"]
    parser.add_argument("--models", nargs="+", choices=names, default=list(MODELS["cpu"]), metavar="MODEL",
                        help=f"of {', '.join(names)}")  # fmt: skip
    parser.add_argument("--modes", nargs="+", choices=[mode.name for mode in MODES], default=[], metavar="MODE",
                        help="of " + "; ".join(mode.name for mode in MODES))  # fmt: skip
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["inference"])
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES))
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2, help="of a processor")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each mode")
    parser.add_argument("--tune", type=float, default=0.0, metavar="SECONDS", help="tune each model first, so long")
    parser.add_argument("--build-limit", type=float, default=400.0, help="seconds until a mode must have a result")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no model is begun")
    parser.add_argument("--lock", type=Path, metavar="FILE",
                        help="build beside other runs that name this file, but take samples alone")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="measure what has times already")
    parser.add_argument("--table", action="store_true", help="measure nothing; write the page of the docs")
    parser.add_argument("--out", type=Path, help="the file of results, if not the machine's own")
    options = parser.parse_args(words)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = options.device == "cuda"
    options.dtypes = options.dtypes or (["bf16"] if on_gpu else ["fp32"])
    options.batches = options.batches or ([64] if on_gpu else [1, 8])
    return options


def main(words: list[str]) -> int:
    options = parsed(words)
    if options.table:
        results.write_page()
        return 0
    deadline, failed = time.monotonic() + options.time_limit, False
    path = options.out or results.path_of(options.device, options.threads)
    data = results.load(path, options.device, options.threads, " ".join(["run.py", *words]))
    for cell in cells_of(options):
        held = results.rows_of(data, cell.key)
        modes = chosen_modes(cell, options, held)
        if not modes:
            continue
        if deadline - time.monotonic() < LEAST_S:
            print(f"{cell.model}: left for the next time", flush=True)
            continue
        print(f"{cell.model}, {cell.kind}, {cell.dtype}, batch {cell.batch}", flush=True)
        with quiet(options.lock) as alone:
            rows = measure(cell, modes, options, alone)
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            data["cells"] = results.cells(path)  # other runs may have added some
            results.add(data, cell.key, {name: row | {"date": stamp} for name, row in rows.items()})
            results.write(path, data)
        print(results.told(cell.key, results.rows_of(data, cell.key)), flush=True)
        failed = failed or any("failed" in row or "died" in row for row in rows.values())
    if options.out is None:
        results.write_page()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

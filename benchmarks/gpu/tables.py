"""Result files of GPUs, and the tables and plots of docs/benchmarks-gpu*.md: ``python benchmarks/gpu/tables.py``.

A page names the card whose tables it shows in the comment with which they begin.
"""

from __future__ import annotations

import json
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from tilesmith.measure.machine import roofline_seconds, sustained_machine
from tilesmith.problems.driver import command_of, is_key, parse_problem
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.key_text import epilogue_text
from tilesmith.problems.keys import parse_key
from tilesmith.targets.detect_cuda import cuda_devices
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CudaTarget
from tilesmith.toolchain.nvrtc import find_nvrtc

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
BEGIN, END = re.compile(r"<!-- begin tables of (\w+) -->"), "<!-- end tables -->"
FITTED_ON = ("gpu_defaults_h200.jsonl", "gpu_gemm_configs_h200.jsonl")
# Lists made after the first figures: in no overall figure.
LATER = (
    "few_channels",
    "channels_first",
    "networks",
    "irregular_random",
    "irregular_fp16",
    "grouped_fp32",
    "network_layers",
    "grouped_volumes",
    "gemm_tvm",
    "gemm_fp8",
    "gemm_int8",
    "gemm_odd",
    "gemm_grouped",
)
FEW_CHANNELS = 8
CUT_SHORT = 0.97  # of the untuned choice's speed
FIELDS = ("driver_version", "clocks.max.sm", "clocks.max.mem", "clocks.sm", "power.limit", "memory.total")
Rows = list[dict]


def ratio(row: dict, side: str = "bench") -> float | None:
    """Theirs over ours, of the library that computes the problem; none where the times say little."""
    found = row.get(side) or {}
    if found.get("status", "ok") != "ok":
        return None
    return next(iter((found.get("ratio") or {}).values()), None)


def single(row: dict) -> float | None:
    """``ratio`` of single calls."""
    found = row.get("bench") or {}
    if found.get("status", "ok") != "ok":
        return None
    return next(iter((found.get("single_ratio") or {}).values()), None)


def as_given(row: dict, *, single: bool = False) -> float | None:
    """``ratio``, or that of single calls, to the library's fastest way on operands as given."""
    found = row.get("bench") or {}
    if found.get("status", "ok") != "ok":
        return None
    ours, theirs = ("single_us", "given_single_us") if single else ("time_us", "given_us")
    us = next(iter((found.get("against") or {}).values()), {}).get(theirs)
    return us / found[ours] if us else None


def merged(rows: Rows) -> Rows:
    """Rows with the median of our times over all passes, and the fastest of the library's."""
    return [row | {"bench": _merged(row["bench"], row["again"])} if row.get("again") else row for row in rows]


def _merged(first: dict, again: list[dict]) -> dict:
    passes = [first, *again]
    ours = {key: statistics.median(each[key] for each in passes) for key in ("time_us", "single_us")}
    against, found = {}, first | ours
    for name in first["against"]:
        theirs = [each["against"][name] for each in passes if name in each["against"]]
        best = min(theirs, key=lambda each: each["time_us"])
        lows = {key: least(each.get(key) for each in theirs) for key in ("single_us", "given_us", "given_single_us")}
        against[name] = best | lows
    scale = first["time_us"] / ours["time_us"]
    return found | {
        "against": against,
        "ratio": {name: them["time_us"] / ours["time_us"] for name, them in against.items()},
        "single_ratio": {name: them["single_us"] / ours["single_us"] for name, them in against.items()},
        "roofline": first["roofline"] * scale,
        "gflops": first["gflops"] * scale,
    }


@lru_cache(maxsize=1)
def fitted_keys() -> frozenset[str]:
    """The problems on which constants of the cost models were fitted, by canonical key."""
    lines = [line for name in FITTED_ON for line in (RESULTS / name).read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    return frozenset(parse_key(row["key"]).canonical.key() for row in rows if "key" in row)


def is_fitted(row: dict) -> bool:
    """Whether a constant was fitted on the problem."""
    return dict(_keys_of(row["command"]))[row["direction"]] in fitted_keys()


@lru_cache(maxsize=512)
def _keys_of(command: str) -> tuple[tuple[str, str], ...]:
    return tuple((direction, sig.canonical.key()) for direction, sig in parse_problem(command).signatures)


def portfolio(row: dict) -> float | None:
    """The same where PyTorch's own kernels take part; none where they were left out of the race."""
    if not row.get("raced", True):
        return None
    return ratio(row, "external") if row.get("external") else ratio(row)


def is_dense(row: dict) -> bool:
    """No groups, and no tensor of fewer than eight channels."""
    words = row["command"].split()
    if words[0].startswith("gemm"):
        return True
    flags = dict(zip(words[1::2], words[2::2], strict=False))
    return flags.get("-g", "1") == "1" and min(int(flags["-c"]), int(flags["-k"])) >= FEW_CHANNELS


def geomean(values: Iterable[float | None]) -> float | None:
    kept = [value for value in values if value]
    return statistics.geometric_mean(kept) if kept else None


def least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value), default=None)


def library_roofline(row: dict) -> float | None:
    own, faster = (row.get("bench") or {}).get("roofline"), ratio(row)
    return own / faster if own and faster else None


def sustained(row: dict) -> float | None:
    """The share of the same bound with what the row's target sustains, not its data sheet's peaks."""
    found = row.get("bench") or {}
    if "target" not in row or not found.get("time_us"):
        return None
    target = parse_target(row["target"])
    assert isinstance(target, CudaTarget)
    signature = dict(parse_problem(row["command"]).signatures)[row["direction"]]
    return roofline_seconds(signature, target, sustained_machine(target)) * 1e6 / found["time_us"]


def figures(rows: Rows) -> dict[str, float | None]:
    """One line of the summary."""
    statuses = [(row.get("bench") or {}).get("status") for row in rows]
    good = [row for row, status in zip(rows, statuses, strict=True) if status == "ok"]
    disturbed = statuses.count("disturbed")
    tuned = [row["tune"] for row in rows if row.get("tune")]
    searched = [found for found in tuned if found["trials"] > 1]  # else the untuned choice is all that was measured
    return {
        "problems": len(rows), "failed": len(rows) - len(good) - disturbed, "disturbed": disturbed,
        "left_out": len(rows) - len(good),
        "geomean": geomean(map(ratio, good)), "least": least(map(ratio, good)),
        "single": geomean(map(single, good)), "least_single": least(map(single, good)),
        "below": sum((ratio(row) or 1.0) < 0.95 for row in good), "with_external": geomean(map(portfolio, good)),
        "least_with_external": least(map(portfolio, good)),
        "roofline": geomean(row["bench"]["roofline"] for row in good),
        "library_roofline": geomean(map(library_roofline, good)), "sustained": geomean(map(sustained, good)),
        "given": geomean(map(as_given, good)), "given_single": geomean(as_given(row, single=True) for row in good),
        "untuned": geomean(1 / found["speedup"] if found.get("speedup") else None for found in searched),
        "searched": len(searched),
        "seconds": statistics.median([found["seconds"] for found in tuned]) if tuned else None,
    }  # fmt: skip


Columns = dict[str, tuple[str, Callable[[float], str]]]
# The result, what it is measured against, and how choices were found: three tables that fit a screen.
RESULT: Columns = {
    "problems": ("problems", lambda v: f"{v:.0f}"),
    "geomean": ("library / ours in rows, geomean", lambda v: f"**{v:.3f}**"), "least": ("least", lambda v: f"{v:.2f}"),
    "single": ("single calls, geomean", lambda v: f"{v:.3f}"), "least_single": ("least", lambda v: f"{v:.2f}"),
    "below": ("below 0.95", lambda v: f"{v:.0f}"), "left_out": ("failed or disturbed", lambda v: f"{v:.0f}"),
}  # fmt: skip
BOUNDS: Columns = {
    "roofline": ("of roofline, ours", lambda v: f"{v:.2f}"),
    "library_roofline": ("the library's", lambda v: f"{v:.2f}"),
    "sustained": ("of sustained peaks, ours", lambda v: f"{v:.2f}"),
    "given": ("library on operands as given / ours in rows", lambda v: f"{v:.3f}"),
    "given_single": ("single calls", lambda v: f"{v:.3f}"),
}  # fmt: skip
SEARCHES: Columns = {
    "with_external": ("with PyTorch's kernels, geomean", lambda v: f"{v:.3f}"),
    "least_with_external": ("least", lambda v: f"{v:.2f}"), "searched": ("searched", lambda v: f"{v:.0f}"),
    "untuned": ("untuned / tuned speed", lambda v: f"{v:.2f}"), "seconds": ("tuning, median s", lambda v: f"{v:.1f}"),
}  # fmt: skip


TOGETHER = ("resnet50", "boo", "diffusion")  # of convolutions that tensor cores can do, in real models
DENSE = f"dense, {FEW_CHANNELS} channels and more"


def summary(lists: dict[str, Rows], columns: Columns = RESULT) -> list[str]:
    lines = [
        "| list | " + " | ".join(title for title, _ in columns.values()) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    kinds: list[tuple[str, Rows]] = []
    for name, rows in lists.items():
        dense = [row for row in rows if is_dense(row)]
        kinds.append((f"`{name}`{' (later)' if name in LATER else ''}", rows))
        if 0 < len(dense) < len(rows):
            kinds.append((f"`{name}`, {DENSE}", dense))
    if set(TOGETHER) <= set(lists):
        together = [row for name in TOGETHER for row in lists[name] if is_dense(row)]
        kinds.append((f"{', '.join(f'`{name}`' for name in TOGETHER)}, {DENSE}", together))
    first = [row for name, rows in lists.items() if name not in LATER for row in rows]
    gemms, convs = ([row for row in first if row["command"].startswith("gemm") == is_gemm] for is_gemm in (True, False))
    if len(lists) > 1:
        both = (("all convolutions of the first lists", convs), ("all GEMMs", gemms))
        kinds += [(title, rows) for title, rows in both if rows]
    for title, chosen in kinds:
        found = figures(chosen)
        cells = ["" if found[key] is None else show(found[key]) for key, (_, show) in columns.items()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def short(row: dict) -> str:
    """A problem in a few words, from its driver command or its key."""
    if is_key(row["command"]):
        fused = parse_key(row["command"])
        if isinstance(fused, GemmSignature) and fused.groups:
            plain = command_of(replace(fused, groups=0, ldb=None, stride_b=None))
            return f"{short({**row, 'command': plain})} of {fused.groups} groups"
        plain = command_of(replace(fused, epilogue=Epilogue()))
        return f"{short({**row, 'command': plain})} {epilogue_text(fused.epilogue)}".rstrip()
    words = row["command"].split()
    flags = dict(zip(words[1::2], words[2::2], strict=False))
    if words[0].startswith("gemm"):
        letters = "".join("nt"[int(flags.get(name, 0))] for name in ("--transA", "--transB"))
        m, n, k = flags.get("--a_h"), flags.get("--b_w"), flags.get("--a_w")
        return f"gemm {letters} {m}x{n}x{k}"
    names = (("--in_d", "-H", "-W"), ("--fil_d", "-y", "-x"))
    size, taps = ("x".join(flags[n] for n in group if n in flags) for group in names)
    kind = "deconv" if flags.get("-m") == "trans" else "conv"
    groups = "" if flags.get("-g", "1") == "1" else f" g{flags['-g']}"
    stride = "" if flags.get("-u", "1") == "1" else f" s{flags['-u']}"
    return f"{row['direction']} {kind} {taps}{stride}{groups} {flags['-n']}x{flags['-c']}x{size} -> {flags['-k']}"


def problems(name: str, rows: Rows) -> list[str]:
    lines = [
        f"## {name}", "",
        "| problem | library / ours | us | library us | the ratio in single calls | TFLOP/s | of roofline | solver |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for row in rows:
        bench = row.get("bench") or {"status": "not run", "reason": ""}
        if bench["status"] != "ok":
            lines.append(f"| {short(row)} | {bench['status']}: {bench['reason'][:80]} | | | | | | |")
            continue
        them = next(iter(bench["against"].values()), None)
        cells = [
            f"{short(row)}{' *' if is_fitted(row) else ''}", f"{ratio(row):.2f}" if them else "",
            f"{bench['time_us']:.1f}", f"{them['time_us']:.1f}" if them else "",
            f"{single(row):.2f}" if single(row) else "", f"{bench['gflops'] * 1e-3:.1f}",
            f"{bench['roofline']:.2f}", bench["solver"],
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def page(data: dict) -> str:
    """Everything between the markers."""
    machine, target = data["machine"], data["target"]
    lists = {name: [row | {"target": target} for row in merged(rows)] for name, rows in data["lists"].items()}
    lines = [
        *summary(lists), "", "The same lists, what bounds them, and the library without copies:", "",
        *summary(lists, BOUNDS), "",
        "With PyTorch's own kernels, and what searches found:", "", *summary(lists, SEARCHES), "",
        *passes_line(data["lists"]), *cut_short_lines(data["lists"]), *wall_line(data),
    ]  # fmt: skip
    for name, rows in lists.items():
        lines += problems(name, rows)
    lines += [
        "## Machine and command", "",
        f"{machine['date']}, {machine['gpus']} x {machine['gpu']} (target `{target}`), driver "
        f"{machine.get('driver_version', '')} (CUDA {machine['cuda']}), SM clock at most "
        f"{machine.get('clocks.max.sm', '')}, power limit {machine.get('power.limit', '')}, {data['cudnn']}; "
        f"{data['cublas']}; {machine['nvrtc']}; {data['method']}.",
        f"`{machine['command']}`", "",
    ]  # fmt: skip
    return "\n".join(lines)


def search_lines(data: dict) -> list[str]:
    """What `make gpu-search` found, in a table."""
    found = data["summary"]
    if not found.get("problems"):
        return []
    disturbed = [f"| left out: the host was late | {found['disturbed']} |"] if found.get("disturbed") else []
    about = (
        f"{data['date']}, {data['gpus']} x {data['gpu']}, `{data['command']}`: each search in an empty database, the "
        "three choices then interleaved in one process."
    )
    lines = [
        "## Search", "", "| | |", "|---|---:|",
        f"| problems | {found['problems']} |", *disturbed,
        f"| seconds of a search, median | {found['seconds']:.1f} |",
        f"| configs measured, median | {found['configs']:.0f} |",
        f"| untuned time / tuned, geomean (worst) | {found['untuned_over_tuned']:.3f} "
        f"({found['untuned_over_tuned_worst']:.2f}) |",
    ]  # fmt: skip
    if "tuned_over_long" in found:
        lines += [
            f"| tuned time / that of a search three times as long ({found['long_configs']:.0f} configs), geomean "
            f"(worst) | {found['tuned_over_long']:.3f} ({found['tuned_over_long_worst']:.2f}) |",
        ]  # fmt: skip
    return [*lines, "", about, ""]


def check_lines(data: dict) -> list[str]:
    """What `make gpu-test` found, in a table."""
    host = next((row for row in data["runtime"] if "ratio" in row), None)
    lines = [
        "## Checks", "",
        "| part | right | wrong | checks |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    for name, counts in data["parts"].items():
        lines.append(f"| {name} | {counts.get('ok', 0)} | {counts.get('wrong', 0)} | {counts.get('checks', 0)} |")
    lines += [
        "",
        f"- problems of lists left to the reference solver: {data['left_to_reference']}; left out as too large: "
        f"{data['too_large']}; not reached: {data['left']}",
        f"- kernels captured in a CUDA graph whose replay was right: {data['replayed']} of {data['graphs']}",
    ]
    if host is not None:
        lines.append(f"- host time of a bound call over that of `torch.nn.functional.conv2d`: {host['ratio']:.2f} "
                     f"({host['ours']:.1f} us over {host['torch']:.1f} us)")  # fmt: skip
    return [*lines, "", f"{data['date']}, {data['gpus']} x {data['gpu']}, `{data['command']}`", ""]


def passes_line(lists: dict[str, Rows]) -> list[str]:
    """How much the library's times differ between the passes."""
    apart = []
    for row in (row for rows in lists.values() for row in rows if row.get("again")):
        times = [
            next(iter(each["against"].values()))["time_us"] for each in (row["bench"], *row["again"]) if each["against"]
        ]
        apart.append(max(times, default=1.0) / min(times, default=1.0))
    if not apart:
        return []
    many = sum(ratio > 1.1 for ratio in apart)
    return [f"Between passes, the library's time differs by over 10 % on {many} of {len(apart)} problems, at most "
            f"{max(apart):.2f} times.", ""]  # fmt: skip


def is_cut_short(row: dict) -> bool:
    """Whether a search ended with less than the speed of the untuned choice: its time was over."""
    return ((row.get("tune") or {}).get("speedup") or 1.0) < CUT_SHORT


def cut_short_lines(lists: dict[str, Rows]) -> list[str]:
    """The rows that show less than the kernels can do."""
    found = [(name, row) for name, rows in lists.items() for row in rows if is_cut_short(row) and ratio(row)]
    if not found:
        return []
    shown = [
        f"- `{name}` {short(row)}: {ratio(row) or 0.0:.2f}, {(ratio(row) or 0.0) / row['tune']['speedup']:.2f}"
        for name, row in found
    ]
    return [
        f"{len(found)} of the searches had too little time, and ended with a config that is slower than the untuned "
        "choice. The ratio in the tables, and that of the untuned choice by the times of the search:", "", *shown, "",
    ]  # fmt: skip


def wall_line(data: dict) -> list[str]:
    """What the runs took, everything included."""
    runs = data.get("wall") or []
    count = sum(run["problems"] for run in runs)
    if not count:
        return []
    spent = sum(run["seconds"] * run["devices"] for run in runs)
    return [
        f"All {count} problems took {spent / 60:.1f} GPU minutes, everything included: {spent / count:.1f} s each.",
        "",
    ]


def results() -> list[Path]:
    return sorted(path for path in RESULTS.glob("gpu_bench_*.json"))


def beside(path: Path) -> list[str]:
    """The tables of the same card's other results."""
    lines = []
    for prefix, show in (("gpu_search", search_lines), ("gpu_test", check_lines)):
        other = path.with_name(path.name.replace("gpu_bench", prefix, 1))
        if other.exists():
            lines += show(json.loads(other.read_text()))
    return lines


def pages() -> dict[Path, Path]:
    """The pages with tables, each with the result file that it shows."""
    found = {path: BEGIN.search(path.read_text()) for path in sorted(DOCS.glob("benchmarks-gpu*.md"))}
    return {path: RESULTS / f"gpu_bench_{begin[1]}.json" for path, begin in found.items() if begin}


def plot_of(result: Path) -> Path:
    """The picture of a result file."""
    return DOCS / "images" / f"{result.stem.replace('_', '-').replace('gpu-bench', 'gpu-ratios', 1)}.svg"


def rendered(path: Path, result: Path) -> str:
    """A page as its result file says it."""
    before, begin, rest = re.split(f"({BEGIN.pattern.replace('(', '(?:')})", path.read_text())
    found = "\n".join([page(json.loads(result.read_text())), *beside(result)])
    return f"{before}{begin}\n\n{found}\n{END}{rest.split(END)[1]}"


def write_pages() -> None:
    """Nothing where there are no pages: a copy of the benchmarks alone."""
    for path, result in pages().items():
        if result.exists():
            path.write_text(rendered(path, result))


def draw(data: dict, path: Path) -> None:
    """The ratio of every problem, list by list, on a logarithmic axis; the bar is the geomean. Needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilesmith"  # the same file each time
    from matplotlib import pyplot

    lists = {name: merged(rows) for name, rows in data["lists"].items()}
    figure, axes = pyplot.subplots(figsize=(9, 4.2), layout="constrained")
    for place, rows in enumerate(lists.values()):
        for side, of, colour in ((-0.17, ratio, "#1f77b4"), (0.17, single, "#ff7f0e")):
            found = sorted(value for value in map(of, rows) if value)
            if not found:
                continue
            across = [place + side + 0.24 * (i / max(1, len(found) - 1) - 0.5) for i in range(len(found))]
            axes.scatter(across, found, s=9, color=colour, alpha=0.6, linewidths=0)
            mean = statistics.geometric_mean(found)
            axes.hlines(mean, place + side - 0.15, place + side + 0.15, color=colour, linewidth=2.5)
            axes.annotate(f"{mean:.2f}", (place + side, mean), (0, 4), textcoords="offset points", ha="center", size=7)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.set_yticks([0.5, 1, 1.5, 2, 3, 4, 6], ["0.5", "1", "1.5", "2", "3", "4", "6"])
    axes.minorticks_off()
    axes.set_xticks(range(len(lists)), [f"{n}{chr(10)}(later)" if n in LATER else n for n in lists], size=8)
    axes.set_ylabel("library's time / ours (above 1: we are faster)")
    for label, colour in (("rows of calls", "#1f77b4"), ("single calls", "#ff7f0e")):
        axes.scatter([], [], s=16, color=colour, label=label)
    axes.legend(loc="upper left", frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Description": f"results of {data['machine']['date']}"})
    pyplot.close(figure)


def slug(name: str) -> str:
    """A card's name in file names: ``nvidia_h200``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def facts(command: str) -> dict[str, object]:
    """Machine, driver, clocks, date and command."""
    devices = cuda_devices()
    asked = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader"]
    try:
        line = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()[0]
        read = dict(zip(FIELDS, (cell.strip() for cell in line.split(",")), strict=True))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        read = {}
    return {
        "gpu": devices[0].name, "gpus": len(devices), "cuda": devices[0].driver, **read, "host": platform.machine(),
        "nvrtc": find_nvrtc().identity, "torch": _torch(), "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
    }  # fmt: skip


def _torch() -> str:
    try:
        import torch
    except ImportError:
        return ""
    return str(torch.__version__)


def write_json(path: Path, data: dict) -> None:
    """In one step: a reader sees the whole file, or the one before it."""
    staged = path.with_suffix(".part")
    staged.write_text(json.dumps(data, indent=1) + "\n")
    staged.replace(path)


if __name__ == "__main__":
    write_pages()
    for held in pages().values():
        draw(json.loads(held.read_text()), plot_of(held))
    sys.exit(0)

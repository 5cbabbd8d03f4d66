"""The CPU tables of the documentation: tune benchmarks/problems/cpu_fp32.txt, then run it beside oneDNN.

    python benchmarks/cpu.py              # fp32 and bf16, one and two threads; about 40 minutes on 2 cores
    python benchmarks/cpu.py fp32_t1      # one of them
    python benchmarks/cpu.py --again      # measure again what is tuned already; a run's name may follow
    python benchmarks/cpu.py --table      # only write the tables anew from benchmarks/results/

Each run leaves benchmarks/results/cpu_<run>.json and rewrites the tables of docs/benchmarks-cpu.md. Tuning goes into a
database of its own under build/, so that every run begins from nothing. Files put into benchmarks/results/avx512/ are
shown as well: results of another kind of processor.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

DISTURBED = 3  # exit status of bench: all is right, and some times say little
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OTHERS = RESULTS / "avx512"
PAGE = ROOT / "docs" / "benchmarks-cpu.md"
PROBLEMS = "benchmarks/problems/cpu_fp32.txt"
RUNS = {"fp32_t1": ("fp32", 1), "fp32_t2": ("fp32", 2), "bf16_t1": ("bf16", 1), "bf16_t2": ("bf16", 2)}
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"


def command(dtype: str, threads: int, out: Path) -> list[str]:
    tool = str(Path(sys.executable).with_name("tilesmith"))
    return [
        tool, "bench", PROBLEMS, "--against", "onednn", "--tune", "--dtype", dtype, "--threads", str(threads),
        "--seconds", "8", "--json", str(out.relative_to(ROOT)),
    ]  # fmt: skip


def run(name: str, again: bool) -> int:
    """The exit status of ``tilesmith bench``."""
    dtype, threads = RUNS[name]
    folder = ROOT / "build" / "bench" / name
    if not again:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "TILESMITH_CACHE_DIR": str(folder / "cache"),
        "TILESMITH_DB_PATH": str(folder / "tilesmith.db"),
    }
    words = [word for word in command(dtype, threads, RESULTS / f"cpu_{name}.json") if not (again and word == "--tune")]
    return subprocess.run(words, cwd=ROOT, env=env, check=False).returncode


def short(row: dict) -> str:
    """A problem in a few words, from its driver command."""
    words = row["command"].split()
    flags = dict(zip(words[1::2], words[2::2], strict=False))
    kind = "deconv" if flags.get("-m") == "trans" else "conv"
    groups = "" if flags["-g"] == "1" else f" g{flags['-g']}"
    stride = "" if flags["-u"] == "1" else f" s{flags['-u']}"
    size = f"{flags['-n']}x{flags['-c']}x{flags['-H']}x{flags['-W']}"
    return f"{row['direction']} {kind} {flags['-y']}x{flags['-x']}{stride}{groups} {size} -> {flags['-k']}"


def ratios_of(data: dict) -> list[float]:
    """oneDNN's time over ours for each row that is ok."""
    return [row["ratio"]["onednn"] for row in data["results"] if row["status"] == "ok" and "onednn" in row["ratio"]]


def overview(found: list[tuple[str, dict]]) -> str:
    """The geometric mean of each run: one line for each processor, one column for each run."""
    names = [name for name in RUNS if any(name == each for each, _ in found)]
    heads = [f"{dtype}, {threads} thread{'s' if threads > 1 else ''}" for dtype, threads in map(RUNS.get, names)]
    means: dict[str, dict[str, str]] = {}
    for name, data in found:
        ratios = ratios_of(data)
        mean = f"{statistics.geometric_mean(ratios):.3f}" if ratios else ""
        means.setdefault(data["target"].partition(":")[0], {})[name] = mean
    rows = [f"| `{arch}` | {' | '.join(of.get(name, '') for name in names)} |" for arch, of in means.items()]
    head = ["oneDNN's time over Tilesmith's time, geometric mean over the problems; above 1, Tilesmith is faster:", ""]
    return "\n".join([*head, f"| processor | {' | '.join(heads)} |", f"|---|{'---:|' * len(names)}", *rows, ""])


def table(name: str, data: dict) -> str:
    dtype, threads = RUNS[name]
    host = data["host"]
    lines = [
        f"## {dtype}, {threads} thread{'s' if threads > 1 else ''}, {data['target'].partition(':')[0]}",
        "",
        "| problem | oneDNN / ours | us | oneDNN us | GFLOP/s | of roofline | packing us | solver |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in data["results"]:
        if row["status"] != "ok":
            lines.append(f"| {short(row)} | {row['status']}: {row['reason']} | | | | | | |")
            continue
        them, ratio = row["against"].get("onednn", {}), row["ratio"].get("onednn")
        cells = [
            short(row), f"{ratio or 0:.2f}", f"{row['time_us']:.1f}", f"{them.get('time_us', 0):.1f}",
            f"{row['gflops']:.0f}", f"{row['roofline']:.2f}", f"{row['prepare_us']:.1f}", row["solver"],
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    good = [row for row in data["results"] if row["status"] == "ok"]
    ratios = ratios_of(data)
    out = len(data["results"]) - len(good)
    left = f" {out} of {len(data['results'])} left out." if out else ""
    mean = f"Geomean **{statistics.geometric_mean(ratios):.3f}**, least {min(ratios):.3f}." if ratios else "No ratio."
    about = (
        f"{host['date']}, {host['cpu']}, {host['cores']} cores, load {host['load']}, target `{data['target']}`, "
        f"{host['onednn']}, {host['compiler'].split(';')[0]}; {host['method']}. `python benchmarks/cpu.py {name}`"
    )
    return "\n".join([*lines, "", mean + left, "", about, ""])


def search_table(data: dict) -> str:
    """What benchmarks/search.py measured: the untuned choice and the tuned one, against a search many times as long."""
    host, summary = data["host"], data["summary"]
    shown = [row for row in data["results"] if not row.get("disturbed")]
    out = len(data["results"]) - len(shown)
    left = f" {out} of {len(data['results'])} left out: other processes disturbed them." if out else ""
    if not shown:
        return ""
    lines = [
        f"## The search (`{data['target'].partition(':')[0]}`)",
        "",
        f"| problem | tuned, s | untuned / tuned | a search {data['times']:.0f} times as long, s | tuned / long |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| `{row['key'].split(';stride')[0].removeprefix('conv1;')}` | {row['seconds']:.1f} | "
            f"{row['fast_over_tuned']:.3f}{' =' * (row['config']['fast'] == row['config']['short'])} | "
            f"{row['long_seconds']:.0f} | {row['tuned_over_long']:.3f} |"
            for row in shown
        ),
        "",
        f"Untuned over tuned **{summary['fast_over_tuned']:.3f}**, "
        f"tuned over long **{summary['tuned_over_long']:.3f}** (geomeans); "
        f"median {summary['median_seconds']:.1f} s a problem. `=`: the tuned choice is the untuned one.{left}",
        "",
        f"{host['date']}, {host['cpu']}, {host['cores']} cores, load {host['load']}, target `{data['target']}`, "
        f"{host['compiler'].split(';')[0]}. `python benchmarks/search.py --every {data.get('every', 1)}`: three "
        "choices, each from an empty database, run interleaved. Above 1 the second of the two is faster.",
        "",
    ]
    return "\n".join(lines)


def write_page() -> None:
    found = [(name, folder / f"cpu_{name}.json") for folder in (RESULTS, OTHERS) for name in RUNS]
    runs = [(name, json.loads(path.read_text())) for name, path in found if path.exists()]
    tables = "\n".join([overview(runs), *(table(name, data) for name, data in runs)])
    for search in (RESULTS / "search_t1.json", OTHERS / "search_t1.json"):
        if search.exists():
            tables += "\n" + search_table(json.loads(search.read_text()))
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{rest.split(END)[1]}")


def main(words: list[str]) -> int:
    again, words = "--again" in words, [word for word in words if word != "--again"]
    names = [] if words == ["--table"] else (words or list(RUNS))
    unknown = [name for name in names if name not in RUNS]
    if unknown:
        print(f"{unknown[0]!r} is not one of {', '.join(RUNS)}", file=sys.stderr)
        return 2
    statuses = {run(name, again) for name in names}
    write_page()
    return 1 if statuses - {0, DISTURBED} else max(statuses, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

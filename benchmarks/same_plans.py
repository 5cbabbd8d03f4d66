"""Compares the plans that two versions make for every row and check in benchmarks/results/. Needs no GPU, no compiler.

    python benchmarks/same_plans.py CHECKOUT

CHECKOUT is a tree of another version, after `make setup` there. Each tree runs its own copy of this program over its
own results: for each row the plan of the config that was measured and that of the untuned choice, for each check of
`make gpu-test` the plan that it runs. Plans are equal when their sources, launches and every argument are, byte for
byte but for the names of symbols and of axes, and for comments. Prints the rows that differ, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", help="the other tree; none: print digests")
    checkout = parser.parse_args().checkout
    if checkout is None:
        for name, digest in digests():
            print(json.dumps([name, digest]))
        return 0
    with ThreadPoolExecutor(2) as pool:
        before, after = pool.map(digests_of, (checkout, ROOT))
    differ = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    for name in sorted(differ)[:_SHOWN]:
        print(f"{name}: {before.get(name, 'missing')} -> {after.get(name, 'missing')}")
    print(f"{len(before)} plans before, {len(after)} now, {len(differ)} differ")
    return 1 if differ else 0


def digests_of(tree: Path) -> dict[str, str]:
    """A digest for each row and check, as the version in ``tree`` makes its plan."""
    command = [str(tree / ".venv" / "bin" / "python"), str(tree / "benchmarks" / Path(__file__).name)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr[-2000:]}")
    return dict(json.loads(line) for line in done.stdout.splitlines())


def digests() -> Iterator[tuple[str, str]]:
    """The digests of this version, by the names of rows: the untuned choices and the plans that have a config."""
    for name, signature, target, solver, config in rows():
        values = " ".join(part.partition("=")[2] for part in config.split())
        yield f"{name} {solver} {values}", _digest(signature, target, solver, config)
    for name, signature, target in untuned():
        yield f"untuned {name}", _digest(signature, target, "", "")


def rows() -> Iterator[tuple]:
    """``(name, signature, target, solver, config)`` of every measured row and every check."""
    from gpu_cases import chosen, kernel_cases, list_cases, list_names

    from tilesmith.problems.signature import parse_key
    from tilesmith.targets.names import parse_target

    gpu = _gpu()
    for path in sorted(RESULTS.rglob("*.json")):
        held = json.loads(path.read_text())
        if "lists" in held:
            for row in (row for found in held["lists"].values() for row in found if "config" in row.get("bench", {})):
                signature = _from_command(row["command"])[row["direction"]]
                yield f"{path.name} {signature.key()}", signature, gpu, row["bench"]["solver"], row["bench"]["config"]
        elif str(held.get("target", "")).startswith("x86_64") and "results" in held:
            target = parse_target(held["target"])
            for row in held["results"]:
                configs = row["config"].values() if isinstance(row["config"], dict) else [row["config"]]
                for config in dict.fromkeys(configs):
                    signature = parse_key(row["key"])
                    solver = row.get("solver") or _solver_of(signature, target, config)
                    yield f"{path.relative_to(RESULTS)} {row['key']}", signature, target, solver, config
    for path in (RESULTS / "gpu_defaults_h200.jsonl", RESULTS / "gpu_gemm_configs_h200.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            if "config" in row:
                solver = row.get("solver", "wgmma_gemm")
                yield f"{path.name} {row['key']}", parse_key(row["key"]), gpu, solver, row["config"]
    for case in (*list_cases(list_names()), *kernel_cases(gpu)):
        signature = parse_key(case.key)
        found = chosen(case, signature, gpu)
        if found is not None:
            yield f"check {case.name}", signature, gpu, found[0].name, str(found[1])


def untuned() -> Iterator[tuple]:
    """``(name, signature, target)`` of every list's problems, on GPUs and on CPUs of each level."""
    from gpu_cases import list_names, listed

    from tilesmith.targets.cpu import cpu_target

    targets = [_gpu(), *(cpu_target(arch, cores) for arch, cores in (("x86_64-v3", 1), ("x86_64-v4-bf16", 2)))]
    for name in list_names():
        for _, _, signature in listed(name):
            for target in targets:
                yield f"{target.arch} {target.cores} {signature.canonical.key()}", signature.canonical, target


def _gpu():
    from tilesmith.targets.cuda import cuda_target

    return replace(cuda_target("sm_90a", 132), l2_bytes=60 << 20)


def _solver_of(signature, target, config: str) -> str:
    """The first solver whose configs have these axes: results of searches do not name it."""
    from tilesmith.solvers.solver import Accepted

    found = [c for c in _candidates(signature, target) if isinstance(c.verdict, Accepted)]
    axes = {c.name: [name for name, _ in c.solver.default_config(c.geometry, target).values] for c in found}
    named = {name: [axis for axis, _ in _read(name, config).values] for name in axes}
    return next((name for name, held in axes.items() if held == named[name]), "none")


def _read(solver: str, config: str):
    """A config by the names of its axes, those of former days too (a version before these knows only its own)."""
    try:
        from tilesmith.solvers.old_names import read_config
    except ImportError:
        from tilesmith.solvers.solver import parse_config

        return parse_config(config)
    return read_config(solver, config)


@lru_cache(maxsize=64)
def _from_command(command: str) -> dict:
    from tilesmith.problems.driver import parse_command

    return {direction: signature.canonical for direction, signature in parse_command(command).signatures}


@lru_cache(maxsize=16)
def _candidates(signature, target) -> tuple:
    from tilesmith.solvers.table import candidates

    return candidates(signature, target)


def _digest(signature, target, solver: str, config: str) -> str:
    """Of a plan (``""`` for ``solver`` and ``config``: of the untuned choice's); ``none`` where there is none."""
    from tilesmith.dispatch.choose import choose
    from tilesmith.dispatch.facts import options_of
    from tilesmith.errors import TilesmithError
    from tilesmith.solvers.solver import Accepted

    signature = signature.canonical
    try:
        if not solver:
            choice = choose(options_of(signature, target), (), mode="fast")
            solver, config = choice.solver, choice.config
        found = next(c for c in _candidates(signature, target) if c.name == solver and isinstance(c.verdict, Accepted))
        draft = found.solver.draft(found.geometry, _read(solver, config), target)
    except (TilesmithError, ValueError, KeyError, StopIteration) as error:
        return f"none ({type(error).__name__})"
    text = repr(draft)
    for place, source in enumerate(draft.sources):
        text = text.replace(source.symbol, f"symbol{place}")
    text = re.sub(r" *//.*?(?=\\n)", "", text)  # the repr of a source has its line ends as two characters
    return hashlib.sha256(f"{solver} {text}".encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())

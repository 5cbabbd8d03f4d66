"""Compares the plans that two versions make for every row and check in benchmarks/results/. Needs no GPU.

    python benchmarks/same_plans.py CHECKOUT [--compile N]

CHECKOUT is a tree of another version, after `make setup` there. Each tree runs its own copy of this program over its
own results: for each row the plan of the config that was measured and that of the untuned choice, for each check of
`make gpu-test` the plan that it runs. Plans are equal when their sources, launches and every argument are, byte for
byte but for the names of symbols and of axes, and for comments. Prints the rows that differ, and exits with 1 if there
are any.

With --compile, CUDA texts that differ in plans that are otherwise equal are compiled by both versions, N pairs of them
spread over all: they are equal when the machine code is, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
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
    parser.add_argument("--compile", type=int, default=0, metavar="N", help="pairs of differing CUDA texts to compile")
    parser.add_argument("--texts", type=Path, help="where digests leave their sources")
    asked = parser.parse_args()
    if asked.checkout is None:
        for row in digests(asked.texts):
            print(json.dumps(row))
        return 0
    with tempfile.TemporaryDirectory() as held, ThreadPoolExecutor(2) as pool:
        folders = (Path(held, "before"), Path(held, "after"))
        before, after = pool.map(digests_of, (asked.checkout, ROOT), folders)
        differ = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        if asked.compile:
            same = same_code(before, after, differ, folders, asked.compile)
            print(f"{len(same)} pairs of texts compiled, {sum(same.values())} give the same machine code")
            by_text = {name for name in differ if paired(before.get(name), after.get(name))}
            wrong = {pair for pair, equal in same.items() if not equal}
            unlike = {name for name in by_text if wrong & set(zip(before[name][1], after[name][1], strict=True))}
            print(f"{len(by_text)} plans differ in their texts alone")
            differ = differ - by_text | unlike
    for name in sorted(differ)[:_SHOWN]:
        print(f"{name}: {before.get(name, 'missing')} -> {after.get(name, 'missing')}")
    print(f"{len(before)} plans before, {len(after)} now, {len(differ)} differ")
    return 1 if differ else 0


def digests_of(tree: Path, texts: Path) -> dict[str, tuple[str, list[str]]]:
    """For each row and check, as the version in ``tree`` makes its plan: the plan's digest, and its texts'."""
    texts.mkdir()
    command = [str(tree / ".venv/bin/python"), str(tree / "benchmarks" / Path(__file__).name), "--texts", str(texts)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr[-2000:]}")
    return {name: (plan, found) for name, plan, found in map(json.loads, done.stdout.splitlines())}


def paired(one: tuple[str, list[str]] | None, other: tuple[str, list[str]] | None) -> bool:
    """Whether two plans are equal but for the texts of their CUDA sources."""
    if one is None or other is None or one[0] != other[0] or len(one[1]) != len(other[1]):
        return False
    return all(a == b or (a.endswith(".cu") and b.endswith(".cu")) for a, b in zip(one[1], other[1], strict=True))


def same_code(before, after, names: set[str], folders: tuple[Path, Path], most: int) -> dict[tuple[str, str], bool]:
    """Whether the machine code is equal, for up to ``most`` pairs of texts of rows ``names``."""
    pairs = {
        (one, other): f"{name.split()[-1]} {name}"
        for name in sorted(names)
        if paired(before.get(name), after.get(name))
        for one, other in zip(before[name][1], after[name][1], strict=True)
        if one != other
    }
    ordered = sorted(pairs, key=lambda pair: pair[1])  # digests: any order, the same each time
    chosen = ordered[:: max(1, len(ordered) // most)][:most]
    print(f"{len(ordered)} pairs of texts differ")

    def equal(pair: tuple[str, str]) -> bool:
        one, other = (_machine_code(folder / name) for folder, name in zip(folders, pair, strict=True))
        return one == other

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(chosen, pool.map(equal, chosen), strict=True))


def _machine_code(source: Path) -> dict[str, bytes]:
    """The instructions and constants of a CUDA text, by ELF section."""
    from tilesmith.targets.cuda import cuda_target
    from tilesmith.toolchain.elf import sections_of
    from tilesmith.toolchain.nvrtc import find_nvrtc

    text, output = source.read_bytes(), source.with_suffix(f".{id(source)}.cubin")
    arch = source.name.split(".")[1]
    subprocess.run(
        find_nvrtc().command(cuda_target(arch, 132), str(output)), input=text, capture_output=True, check=True
    )
    image = output.read_bytes()
    output.unlink()
    # NOTE: .nv.constant4 has room for the address of each constexpr number of the text, read or not (NVRTC 13.0).
    return {
        re.sub(r"ts_\w+", "symbol", section.name): section.content
        for section in sections_of(image)
        if section.name.startswith((".text", ".nv.constant")) and section.name != ".nv.constant4"
    }


def digests(texts: Path | None) -> Iterator[tuple[str, str, list[str]]]:
    """The digests of this version, by the names of rows: the untuned choices and the plans that have a config."""
    for name, signature, target, solver, config in rows():
        values = " ".join(part.partition("=")[2] for part in config.split())
        yield f"{name} {solver} {values}", *_digest(signature, target, solver, config, texts)
    for name, signature, target in untuned():
        yield f"untuned {name}", *_digest(signature, target, "", "", texts)


def rows() -> Iterator[tuple]:
    """``(name, signature, target, solver, config)`` of every measured row and every check."""
    from gpu_cases import chosen, kernel_cases, list_cases, list_names

    from tilesmith.problems.keys import parse_key
    from tilesmith.targets.names import parse_target

    gpu = gpu_target()
    for path in sorted(RESULTS.rglob("*.json")):
        held = json.loads(path.read_text())
        if not isinstance(held, dict):
            continue  # of a probe
        if isinstance(held.get("lists"), dict):
            for row in (row for found in held["lists"].values() for row in found if "config" in row.get("bench", {})):
                signature = from_command(row["command"])[row["direction"]]
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

    targets = [gpu_target(), *(cpu_target(arch, cores) for arch, cores in (("x86_64-v3", 1), ("x86_64-v4-bf16", 2)))]
    for name in list_names():
        for _, _, signature in listed(name):
            for target in targets:
                yield f"{target.arch} {target.cores} {signature.canonical.key()}", signature.canonical, target


def gpu_target():
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
def from_command(command: str) -> dict:
    from tilesmith.problems.driver import parse_problem

    return {direction: signature.canonical for direction, signature in parse_problem(command).signatures}


@lru_cache(maxsize=16)
def _candidates(signature, target) -> tuple:
    from tilesmith.solvers.table import candidates

    return candidates(signature, target)


def _digest(signature, target, solver: str, config: str, texts: Path | None) -> tuple[str, list[str]]:
    """Of a plan and its texts. No ``solver`` and ``config``: of the untuned choice's. ``none``: there is no plan."""
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
        return f"none ({type(error).__name__})", []
    plan, names = repr(replace(draft, sources=())), []
    for place, source in enumerate(draft.sources):
        plan = plan.replace(source.symbol, f"symbol{place}")
        text = f"{source.prelude}\n{source.text}".replace(source.symbol, f"ts_{place}")
        plain = re.sub(r"\s*\n\s*", "\n", re.sub(r"[ \t]*//[^\n]*", "", text))
        suffix = "cu" if source.language == "cuda" else "c"
        names.append(f"{hashlib.sha256(plain.encode()).hexdigest()[:16]}.{target.arch}.{suffix}")
        if texts is not None and suffix == "cu":
            texts.joinpath(names[-1]).write_text(text)
    return hashlib.sha256(f"{solver} {plan}".encode()).hexdigest()[:16], names


if __name__ == "__main__":
    sys.exit(main())

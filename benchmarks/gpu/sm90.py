"""Checks and times sm_90a kernels on a device.

python benchmarks/gpu/sm90.py check                      small and odd problems, all stores and epilogues
python benchmarks/gpu/sm90.py time resnet50 boo -n 6     problem lists: the untuned choice and 5 more, against PyTorch
Every case runs in a worker that is started anew when a kernel kills it. Writes JSON lines to $OUT/sm90.jsonl.
"""

import argparse
import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
from tilesmith.errors import CompileError  # noqa: E402
from tilesmith.problems.driver import parse_command  # noqa: E402
from tilesmith.problems.rewrite import rewrites  # noqa: E402
from tilesmith.problems.signature import parse_key  # noqa: E402
from tilesmith.solvers.cuda.conv_sm90 import ConvSm90Solver  # noqa: E402
from tilesmith.solvers.cuda.gemm_sm90 import GemmSm90Solver  # noqa: E402
from tilesmith.solvers.cuda.halo_sm90 import HaloSm90Solver  # noqa: E402
from tilesmith.solvers.cuda.halo_wrw_sm90 import HaloWrwSm90Solver  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402
from tilesmith.solvers.solver import Accepted  # noqa: E402
from tilesmith.targets.cuda import cuda_target  # noqa: E402
from tilesmith.toolchain.build import build_unit  # noqa: E402

TARGET = cuda_target("sm_90a", 132)
SOLVERS = {s.name: s for s in (GemmSm90Solver(), HaloSm90Solver(), HaloWrwSm90Solver(), ConvSm90Solver())}
_KINDS = (
    "warpgroups", "products_m", "pingpong", "swap_mn", "block_k", "blocks_per_sm", "resident", "cluster_m", "slab_n",
    "warpgroups_k", "warpgroups_lines", "block_c",
)  # fmt: skip
PATIENCE, HANGS = 15, 4  # seconds without a new case after which a worker counts as hung, and how many may
OUT = Path(os.environ.get("OUT", "."))
BUILD = Path(tempfile.gettempdir()) / f"sm90_cubins{os.environ.get('SM90_DEBUG', '')}"


@dataclasses.dataclass
class Case:
    key: str  # the problem's
    form: str  # of the form of it that the solver sees
    solver: str
    config: str
    timed: bool = False
    special: str = ""  # "nan": NaN and Inf planted


def variants(key, count, seed=0, names=("",)):
    """``(form, solver, config)``: each form's untuned choice, then points that the cost model likes, all different.

    ``names`` are parts of the names of the solvers to ask.
    """
    found = []
    rng = random.Random(seed)
    for rewrite in rewrites(parse_key(key)):
        for solver in SOLVERS.values():
            g = rewrite.signature.geometry
            if not any(name in solver.name for name in names):
                continue
            if not isinstance(solver.applicable(g, TARGET), Accepted):
                continue
            space, seen = solver.search_space(g, TARGET), {}
            for rank, chosen in enumerate(solver.ranked(g, TARGET)):
                config = chosen
                v = dict(config.values)
                kind = tuple(v.get(n) for n in _KINDS)
                sums = (v.get("cluster_k", 1) > 1, max(v.get("split_k", 1), v.get("split_n", 1)) > 1)
                seen[kind] = seen.get(kind, 0) + 1
                seen[kind, sums] = seen.get((kind, sums), 0) + 1
                if seen[kind] > 3 or seen[kind, sums] > 2:
                    continue
                if rank and "group_m" in v:
                    free = {
                        name: rng.choice(space.axes[name])
                        for name in ("group_m", "taps_inner", "mix_layers", "store_buffers")
                    }
                    other = config.replace(**free)
                    config = other if space.contains(other) else config
                seconds = solver.predict(g, config, TARGET)
                found.append((seconds * (0.5 if rank == 0 else 1.0), rewrite.signature.key(), solver.name, config))
    found.sort(key=lambda item: item[0])
    return [(key, name, str(config)) for _, key, name, config in found[:count]]


def compile_all(drafts):
    BUILD.mkdir(exist_ok=True)
    sources = {s.symbol: s for d in drafts for s in d.sources}
    failed = []
    limit = "#define TS_WAIT_LIMIT 2000000000ll\n" if os.environ.get("SM90_DEBUG") else ""

    def one(source):
        cubin = BUILD / f"{source.symbol}.cubin"
        if cubin.exists():
            return None
        try:
            (found,) = build_unit([dataclasses.replace(source, prelude=limit + source.prelude)], TARGET, cubin)
        except CompileError as error:
            failed.append(source.symbol)
            return f"{source.symbol}: {error}"
        if found.spill_store_bytes or any("C75" in warning for warning in found.warnings):
            return f"NOTE {source.symbol}: {found.spill_store_bytes} bytes spilled {found.warnings}"
        return None

    start = time.time()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for message in pool.map(one, sources.values()):
            if message:
                print(message)
    print(f"{len(sources)} sources compiled in {time.time() - start:.0f} s", flush=True)
    return failed


def draft_of(case):
    solver = SOLVERS[case.solver]
    return solver.draft(parse_key(case.form).geometry, read_config(case.solver, case.config), TARGET)


def flush_buffer():
    import torch

    return torch.zeros(256 * 2**20 // 4, dtype=torch.int32, device="cuda")


def microseconds(f, flush, reps):
    import torch

    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(reps)]
    for begin, end in events:
        flush.sum()  # read, not written: lines that must go back to memory would slow what comes next
        torch.cuda._sleep(250_000)  # long enough for the host to have enqueued what is timed
        begin.record()
        f()
        end.record()
    torch.cuda.synchronize()
    times = [b.elapsed_time(e) * 1e3 for b, e in events]
    return statistics.median(times)


def plant(problem):
    """NaN and Inf into both operands, in few places."""
    import torch

    g = torch.Generator().manual_seed(5)
    for slot in problem.slots[:2]:
        for value in (float("nan"), float("inf"), float("-inf")):
            slot[int(torch.randint(slot.numel(), (1,), generator=g))] = value


def check_special(problem, bound):
    """A text when NaN and Inf are not exactly where the definition has them."""
    import torch

    plant(problem)
    problem.poison()
    bound()
    torch.cuda.synchronize()
    ref = problem.reference("cpu")
    out = problem.result().cpu().double()
    for name, test in (("NaN", torch.isnan), ("Inf", torch.isinf)):
        if not bool((test(out) == test(ref)).all()):
            wrong = (test(out) != test(ref)).sum().item()
            return f"{name} at {wrong} wrong places ({test(ref).sum().item()} expected)"
    good = torch.isfinite(ref)
    off = (out[good] - ref[good]).abs().max().item() if bool(good.any()) else 0.0
    return f"nan ok ({(~good).float().mean().item():.1%} not finite, off {off:.1e})"


def worker(cases_file, start):
    import torch
    from device import Bound
    from problem import Problem

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    cases = [Case(**c) for c in json.loads(Path(cases_file).read_text())]
    flush = flush_buffer()
    state = Path(cases_file + ".state")
    state.touch()
    groups = {}
    for i, case in enumerate(cases):
        groups.setdefault((case.key, case.special), []).append((i, case))
    for (key, special), members in groups.items():
        if members[-1][0] < start:
            continue
        problem = Problem(parse_key(key), exact=True if special else None)
        kept = []
        for i, case in members:
            if i < start:
                continue
            state.write_text(str(i))
            try:
                draft = draft_of(case)
                bound = Bound(draft, [str(BUILD / f"{s.symbol}.cubin") for s in draft.sources], problem.slots)
                if special:
                    print("  ", key[:100], case.config, check_special(problem, bound), flush=True)
                    continue
                problem.poison()
                bound()
                torch.cuda.synchronize()
                found = problem.error()
            except RuntimeError as error:
                print("  EXC", key[:120], case.config, str(error)[:200], flush=True)
                if "encode" in str(error) or "shared memory" in str(error):
                    continue
                os._exit(3)
            if isinstance(found, str):
                print("  BAD", key[:140], case.solver, case.config, found, flush=True)
            elif case.timed:
                kept.append((case, bound, found))
            else:
                print("  ok", key[:110], case.config, f"rel {found[0]:.1e} worst {found[1]:.2f}", flush=True)
        if kept:
            state.touch()
            compare(problem, kept, flush)
        del problem, kept
        torch.cuda.empty_cache()
    state.write_text(str(len(cases)))


def compare(problem, kept, flush):
    """Times of all, interleaved, cooled when long; prints a line and appends JSON."""
    import torch

    rival = problem.rival()
    for _ in range(2):
        rival()
    torch.cuda.synchronize()
    first = microseconds(rival, flush, 5)
    calls = {"torch": rival} | {case.config: bound for case, bound, _ in kept}
    first_times = {name: microseconds(f, flush, 6) for name, f in calls.items()}
    order = sorted((n for n in calls if n != "torch"), key=first_times.get)[:4]
    default = kept[0][0].config
    final = ["torch", *dict.fromkeys([*order, default])]
    times = {name: [] for name in final}
    for _ in range(3):
        for name in final:
            if first > 100:
                torch.cuda.synchronize()
                time.sleep(0.15)
            times[name].append(microseconds(calls[name], flush, 4 if first > 100 else 12))
    med = {name: statistics.median(v) for name, v in times.items()}
    best = min((n for n in final if n != "torch"), key=med.get)
    from tilesmith.problems.work import bytes_moved, flops

    floor = max(flops(problem.signature) / 790e6, bytes_moved(problem.signature) / 4.3e6)
    key = problem.signature.key()
    print(
        f"{key[:105]} torch {med['torch']:.1f} best {med[best]:.1f} = x{med['torch'] / med[best]:.2f} "
        f"default x{med['torch'] / med[default]:.2f} floor {floor:.1f} ({floor / med[best]:.0%}) [{best}]",
        flush=True,
    )
    solver = {case.config: case.solver for case, _, _ in kept}
    row = {
        "key": key,
        "torch": med["torch"],
        "best": med[best],
        "config": best,
        "default": default,
        "floor": floor,
        "default_us": med[default],
        "all": first_times,
        "solver": solver[best],
    }
    with (OUT / "sm90.jsonl").open("a") as f:
        f.write(json.dumps(row) + "\n")


def run(cases):
    drafts = []
    for case in cases:
        try:
            drafts.append(draft_of(case))
        except Exception as error:
            print("DRAFT", case, error)
            raise
    failed = set(compile_all(drafts))
    broken = [any(s.symbol in failed for s in draft.sources) for draft in drafts]
    for case in (case for case, bad in zip(cases, broken, strict=False) if bad):
        print("DOES NOT COMPILE", case)
    cases = [case for case, bad in zip(cases, broken, strict=False) if not bad]
    path = BUILD / "cases.json"
    path.write_text(json.dumps([dataclasses.asdict(c) for c in cases]))
    start = hangs = 0
    while start < len(cases) and hangs < HANGS:
        state = Path(f"{path}.state")
        state.write_text(str(start))
        worker_process = subprocess.Popen([sys.executable, __file__, "worker", str(path), str(start)])
        while (code := worker_process.poll()) is None:
            time.sleep(0.2)
            if time.time() - state.stat().st_mtime > PATIENCE:
                hangs += 1
                worker_process.kill()
                worker_process.wait()
        at = int(state.read_text())
        if code == 0:
            break
        print(f"worker ended with {code} at {cases[at]}", flush=True)
        start = at + 1


def listed(names, directions):
    keys = []
    for name in names:
        for line in (HERE.parent / "problems" / f"{name}.txt").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                for _, signature in parse_command(line).signatures:
                    g = signature.geometry
                    if getattr(g, "direction", "gemm") in directions:
                        keys.append(signature.key())
    return list(dict.fromkeys(keys))


def main():
    if sys.argv[1] == "worker":
        return worker(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("check", "time"))
    parser.add_argument("lists", nargs="*")
    parser.add_argument("-n", type=int, default=6)
    parser.add_argument("--only", default="fwd,bwd,wrw,gemm")
    parser.add_argument("--pick", default="", help="part of the keys to keep, several by commas or |")
    parser.add_argument("--solver", default="", help="part of the names of the solvers to keep, several by commas")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    cases = []
    if args.mode == "check":
        from sm90_cases import check_cases

        cases = check_cases(args.pick)[:: args.every]
    else:
        keys = listed(args.lists, args.only.split(","))[:: args.every]
        parts = args.pick.split("|" if "|" in args.pick else ",")
        keys = [k for k in keys if any(part in k for part in parts)]
        names = args.solver.split(",")
        cases = [Case(key, form, s, c, timed=True) for key in keys for form, s, c in variants(key, args.n, names=names)]
    run([case for case in cases if any(name in case.solver for name in args.solver.split(","))])


if __name__ == "__main__":
    main()

"""Products of a list: tuned, and measured beside cuBLAS's and all of CUTLASS's kernels, within seconds that are given.

    python benchmarks/gpu/probes/sizes.py FILE.json [--peak TFLOPS]      prints what such a run has written
    python benchmarks/gpu/probes/sizes.py PROBLEMS [--tune-seconds S] [--seconds S] [--build-seconds S] [--limit S]
        [--against NAMES] [--types TYPE ...] [--first FILE ...] [--out FILE.json]

What ``tilesmith gemm run PROBLEMS --against cublas,cutlass`` does for one product after the other is done here for all
of them, step by step: CUTLASS's kernels are compiled on all cores; our searches; the races among those kernels; and
both beside each other, in rows of calls and in single calls. Products are dealt out to all GPUs of the machine; a
product meets its rivals on one of them. Results are those of the laboratory (TILESMITH_LAB_DIR, where CUTLASS's kernels
are kept, too), so a run that was stopped goes on, and ``tilesmith gemm perf`` shows them. FILE gets them as JSON. A
rival's kernel that kills its process costs its product's race alone. Searches begin with the configs that the files of
--first found the fastest (``size_lists.first_of``). ``sizes_ahead.py`` compiles before, also on another machine. With
--peak, as ``benchmarks/gpu/ffma.cu`` measures it, exact fp32 products from 2048 on get their shares of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "src")]
from size_lists import first_of, problems_of, work_of  # noqa: E402
from workers import environment, keep_to_my_cores  # noqa: E402

from tilesmith.compare.cutlass.rival import RIVAL as CUTLASS  # noqa: E402
from tilesmith.compare.places import rivals_folder  # noqa: E402
from tilesmith.compare.rival import NOT_TUNED, HungError, Rival, Setting, TriedRival, Way, chosen_rivals  # noqa: E402
from tilesmith.compare.trial import HUNG  # noqa: E402
from tilesmith.compare.trial import main as try_rival  # noqa: E402
from tilesmith.errors import ArgumentError  # noqa: E402
from tilesmith.lab.results import Result, Theirs, newest, read_results  # noqa: E402
from tilesmith.lab.session import FAILURES, Place, Session, place_of  # noqa: E402
from tilesmith.lab.tables import json_rows, line, text_table  # noqa: E402
from tilesmith.lab.words import said  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402
from tilesmith.targets.target import Target  # noqa: E402
from tilesmith.tune.process import Workers  # noqa: E402
from tilesmith.tune.session import TuneResult  # noqa: E402

NICE = 10  # of compilers, beside searches
# The data and the reference of a large product take seconds, which count as its search's.
LARGE, LARGE_S = 8192**3, 8.0
RACES, HANGS_S = 0.75, 20.0  # the share of the limit after which no race begins; seconds of the last one
PEAK_FROM = 2048  # smaller products do not fill the card
NO_BUILD_S = "0.1"  # TILESMITH_RIVAL_SECONDS of a race: what is not compiled by then is left out


@dataclass(frozen=True)
class Raced:
    """A rival whose races are over: nothing is compiled when it is measured."""

    rival: Rival

    @property
    def name(self) -> str:
        return self.rival.name

    @property
    def families(self) -> Sequence[str]:
        return self.rival.families

    def is_here(self) -> bool:
        return self.rival.is_here()

    def version(self) -> str:
        return self.rival.version()

    def is_tuned(self, signature: Signature, target: Target) -> bool:
        """``TunedRival``: a product whose race was left out is measured again after it."""
        return not self._is_left(signature, target)

    def _is_left(self, signature: Signature, target: Target) -> bool:
        return isinstance(self.rival, TriedRival) and self.rival.needs_trial(signature.canonical, target)

    @contextmanager
    def ways(self, setting: Setting) -> Iterator[Sequence[Way]]:
        with self.rival.ways(setting) as ways:
            if not ways and self._is_left(setting.signature, setting.target):
                raise ArgumentError(f"{NOT_TUNED}: its kernels had no time to race")
            yield ways


class Clock:
    """Seconds since the start, before each line; and ``who`` says it."""

    def __init__(self, limit: float, who: str = "") -> None:
        self.began, self.limit, self._who = time.monotonic(), limit, who

    @property
    def late(self) -> bool:
        return time.monotonic() - self.began > self.limit

    def left(self, share: float) -> float:
        """Seconds until this share of the limit is over."""
        return share * self.limit - (time.monotonic() - self.began)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {self._who}{text}", flush=True)


def begin_build() -> subprocess.Popen[bytes]:
    """The process that compiles CUTLASS's kernels."""
    words = [sys.executable, __file__, *sys.argv[1:], "--step", "build"]
    return subprocess.Popen(words)


def spread(problems: list[GemmSignature], place: Place, builds: bool, args: argparse.Namespace) -> int:
    """A process for each device that works on a part of the products, and one that compiles for all of them."""
    clock, count = Clock(args.limit), len(cuda_devices())
    parts = [
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--part", str(number)], stdin=subprocess.PIPE,
                         env=environment(number, count) | {"WORKER_PARTS": str(count)})
        for number in range(count)
    ]  # fmt: skip
    if builds:
        begin_build().wait()
        clock.say("CUTLASS's kernels are compiled")
    for part in parts:
        assert part.stdin is not None
        part.stdin.close()  # its end says that all is compiled
    for part in parts:
        part.wait()
    return finish(problems, place, clock, args)


def finish(problems: list[GemmSignature], place: Place, clock: Clock, args: argparse.Namespace) -> int:
    """Write and show what is known; returns how many products have no result."""
    known = newest(read_results(), place.target.name)
    rows = json_rows([known[key] for each in problems if (key := each.canonical.key()) in known])
    args.out.write_text(json.dumps(rows, indent=1) + "\n")
    if rows:
        show(rows)
    missing = len(Session(place).left(problems))
    clock.say(f"{missing} of {len(problems)} products left; {args.out}")
    return missing


def begin_race(start: int) -> subprocess.Popen[str]:
    """A process that loads the rivals' kernels, and lets them race once it is told the seconds for it."""
    words = [sys.executable, __file__, *sys.argv[1:], "--step", "race", "--start", str(start)]
    quick = os.environ | {"TILESMITH_RIVAL_SECONDS": NO_BUILD_S}
    return subprocess.Popen(words, stdin=subprocess.PIPE, env=quick, text=True)


def race_all(
    problems: list[GemmSignature], rivals: list[TriedRival], clock: Clock, racer: subprocess.Popen[str] | None
) -> None:
    """Let each rival's kernels race for each product, in a process that is begun again after one that dies."""
    target = cuda_target_of(0)
    left = sum(rival.needs_trial(each.canonical, target) for each in problems for rival in rivals)
    start, at = 0, place_of_races()
    at.parent.mkdir(parents=True, exist_ok=True)
    clock.say(f"{left} races of rivals' kernels")
    while left and start < len(problems) and clock.left(RACES) > 0:
        at.write_text(str(start))
        seconds = clock.left(RACES)
        racer = racer or begin_race(start)
        try:
            racer.communicate(f"{seconds}\n", timeout=seconds + HANGS_S)
            if racer.returncode == 0:
                break
        except subprocess.TimeoutExpired:
            clock.say(f"the race of {said(problems[int(at.read_text())])} took too long")
            break
        number = int(at.read_text())
        if racer.returncode != HUNG:  # else the race goes on without the kernel that hung
            clock.say(f"the race of {said(problems[number])} killed its process")
            number += 1
        racer, start = None, number
    if racer is not None and racer.poll() is None:
        racer.kill()
        racer.wait()
    at.unlink(missing_ok=True)


def place_of_races() -> Path:
    """The file that says which product's race is on, on this device."""
    return rivals_folder() / f"race_{os.environ.get('CUDA_VISIBLE_DEVICES', '')}.at"


def race_step(problems: list[GemmSignature], rivals: list[TriedRival], start: int) -> None:
    import torch

    target, at, clock = cuda_target_of(0), place_of_races(), Clock(0.0)
    torch.empty(1, device="cuda")
    for each in problems if CUTLASS in rivals else ():
        CUTLASS.load(each.canonical, target)
    clock.say("the rivals' kernels are loaded")
    clock = Clock(float(sys.stdin.readline()))
    for number, each in enumerate(problems):
        for rival in rivals:
            if number >= start and not clock.late and rival.needs_trial(each.canonical, target):
                at.write_text(str(number))
                began, told = time.monotonic(), StringIO()
                try:
                    with redirect_stdout(told):
                        try_rival(rival.name, each.canonical.key(), "cuda:0", 0)
                except HungError as error:
                    print(f"{said(each)}: {rival.name}: {error}", flush=True)
                    os._exit(HUNG)
                except Exception as error:
                    print(f"{said(each)}: {rival.name}: {type(error).__name__}: {error}"[:300], flush=True)
                    torch.cuda.synchronize()  # raises where the context is lost: another process goes on
                    continue
                last = told.getvalue().strip().rpartition("tell: ")[2]
                clock.say(f"{time.monotonic() - began:.1f} s: {said(each)}: {last}")


def show(rows: list[dict]) -> None:
    """The table of a file, and the geometric means of both ways of timing."""
    results = [result_of(row) for row in rows]
    print(text_table(results, 160))
    singles = [single for each in results if (single := in_single_calls(each)) is not None]
    if singles:
        print("\nsingle calls")
        print(text_table(singles, 160))
    print(f"longest search: {max((each.seconds for each in results), default=0.0):.1f} s")


def show_shares(rows: list[dict], peak: float) -> None:
    """Each large fp32 product's share of the multiply-adds that the card does without memory."""
    for row in rows:
        g = result_of(row).signature.geometry
        if g.a.dtype == "fp32" and not g.tf32 and min(g.m, g.n, g.k) >= PEAK_FROM:
            print(f"{row['tflops']:6.2f} TFLOP/s, {row['tflops'] / peak:.3f} of {peak:.2f}: {row['words']}")


def result_of(row: dict) -> Result:
    fields = {name: value for name, value in row.items() if name not in ("words", "tflops")}
    return Result(**fields | {"rivals": {name: Theirs(**theirs) for name, theirs in row["rivals"].items()}})


def in_single_calls(result: Result) -> Result | None:
    """The result with the times of single calls in place of those of rows."""
    if result.single_us is None:
        return None
    rivals = {
        name: replace(them, time_us=them.single_us)
        for name, them in result.rivals.items() if them.single_us is not None
    }  # fmt: skip
    return replace(result, time_us=result.single_us, single_us=None, roofline=0.0, rivals=rivals)


def work(problems: list[GemmSignature], session: Session, tried: list[TriedRival], args: argparse.Namespace) -> None:
    """All steps of one device."""
    clock = Clock(args.limit, f"GPU {args.part}: ")
    left = session.left(problems)
    clock.say(f"{len(left)} of {len(problems)} products on {session.place.target.name}")
    searches: dict[str, TuneResult] = {}
    known = first_of(args.first)
    with Workers() as workers:
        workers.prepare(0)
        sys.stdin.read()  # until all rivals are compiled: beside 64 compilers no search would end in time
        racer = begin_race(0) if tried and left else None
        for each in left:
            if clock.late:
                break
            session.seconds = args.tune_seconds + LARGE_S * work_of(each) / LARGE
            try:
                key = each.canonical.key()
                found = searches[key] = session.tune(each, workers, first=known.get(key, ()))
            except FAILURES as error:
                clock.say(f"{said(each)}: {error}")
                continue
            us = found.record.time_us
            clock.say(f"{said(each)}: {found.new_trials} configs in {found.seconds:.1f} s, {us:.1f} us")
    race_all(problems, tried, clock, racer)
    for each in left:
        if clock.late or each.canonical.key() not in searches:
            continue
        try:
            clock.say(line(session.measure(each, searches[each.canonical.key()])))
        except FAILURES as error:
            clock.say(f"{said(each)}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems")
    parser.add_argument("--types", nargs="+", default=[], metavar="TYPE", help="those alone: fp32, tf32, …")
    parser.add_argument("--against", default="cublas,cutlass", metavar="NAMES")
    parser.add_argument("--tune-seconds", type=float, default=2.0, help="of a search of small sizes")
    parser.add_argument("--seconds", type=float, default=0.6, help="of measuring a product beside the rivals")
    parser.add_argument("--build-seconds", type=float, default=150.0, help="of compiling CUTLASS's kernels")
    parser.add_argument("--limit", type=float, default=280.0, help="seconds after which nothing is begun")
    parser.add_argument("--first", nargs="+", default=[], type=Path, metavar="FILE", help="configs to begin with")
    parser.add_argument("--out", type=Path, default=Path("sizes.json"))
    parser.add_argument("--peak", type=float, metavar="TFLOPS", help="of fp32; with FILE.json")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=("build", "race"), help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.problems.endswith(".json"):
        rows = json.loads(Path(args.problems).read_text())
        show(rows)
        if args.peak:
            show_shares(rows, args.peak)
        return 0
    problems, target = problems_of(args.problems, args.types), cuda_target_of(0)
    if args.part is not None:
        keep_to_my_cores()
        problems = problems[args.part :: int(os.environ["WORKER_PARTS"])]
    rivals = chosen_rivals([args.against], target, tried=True)
    tried = [rival for rival in rivals if isinstance(rival, TriedRival)]
    if args.step == "build":
        os.nice(NICE)
        CUTLASS.build([each.canonical for each in problems], target, args.build_seconds, lambda text: None)
        return 0
    if args.step == "race":
        race_step(problems, tried, args.start)
        return 0
    place = place_of("cuda", None, [Raced(rival) for rival in rivals])
    if args.part is None:
        return 1 if spread(problems, place, CUTLASS in tried, args) else 0
    work(problems, Session(place, None, args.tune_seconds, bench_seconds=args.seconds), tried, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Tunes a product, measures it beside the rivals, and keeps what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from tilesmith.compare.bench_records import FAILED, Against, Bench
from tilesmith.compare.benchmark import bench
from tilesmith.compare.rival import NOT_TUNED, Rival, TunedRival
from tilesmith.compare.trial import quiet
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.errors import CompileError, LaunchError, NoSolutionError, OutOfTimeError, PlanError
from tilesmith.lab.results import Result, Theirs, add_result, newest, read_results
from tilesmith.measure.machine import Machine, machine_of
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.generation import generator_digest
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.target import Target
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import Listener
from tilesmith.tune.session import TuneResult, tune

SECONDS = 12.0  # of a search
BENCH_S = 1.0  # of measuring a product beside its rivals
FAILURES = (NoSolutionError, CompileError, LaunchError, PlanError, OutOfTimeError)
Tell = Callable[[GemmSignature, "Result | str"], None]
Watch = Callable[[GemmSignature], AbstractContextManager[Listener]]


@dataclass(frozen=True)
class Place:
    """Where products run, and beside what.

    Args:
        target: The target.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        rivals: They run on the target.
        versions: Of the rivals, by name.
    """

    target: Target
    device: str
    rivals: tuple[Rival, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def ordinal(self) -> int:
        """Of a CUDA device; 0 elsewhere."""
        return max(0, device_ordinal(self.device))


def place_of(device: str, threads: int | None, rivals: Sequence[Rival]) -> Place:
    """The place; a rival whose library cannot be loaded raises ``ArgumentError`` that says what to type."""
    versions = tuple((rival.name, rival.version()) for rival in rivals)
    return Place(target_of(None, threads, device), device, tuple(rivals), versions)


class Session:
    """The products of one command, one after the other.

    Args:
        place: Where they run.
        trials: Configs of a search at most; None: no limit.
        seconds: Of a search at most.
        watch_rivals: Called with lines of progress of rivals that compile or tune.
        bench_seconds: Of measuring a product beside its rivals.
    """

    def __init__(
        self, place: Place, trials: int | None = None, seconds: float = SECONDS,
        watch_rivals: Callable[[str], None] = quiet, bench_seconds: float = BENCH_S,
    ) -> None:  # fmt: skip
        self.place, self.trials, self.seconds, self.watch_rivals = place, trials, seconds, watch_rivals
        self.bench_seconds = bench_seconds
        self.layers, self.cache = lasting_databases(), open_cache()
        self._machine: Machine | None = None

    def left(self, problems: Iterable[GemmSignature]) -> list[GemmSignature]:
        """The products without a result of this target, this generator and these versions of the rivals."""
        known = newest(read_results(), self.place.target.name)
        return [each for each in problems if not self._is_known(known.get(each.canonical.key()))]

    def _is_known(self, result: Result | None) -> bool:
        if result is None or result.disturbed or result.generator != generator_digest(self.place.target.family):
            return False
        for rival in self.place.rivals:
            reason = result.missing.get(rival.name, "")
            if not reason.startswith(NOT_TUNED) or not isinstance(rival, TunedRival):
                continue
            if rival.is_tuned(result.signature, self.place.target):
                return False
        held = {name: theirs.version for name, theirs in result.rivals.items()}
        return all(held.get(name, version) == version for name, version in self.place.versions) and all(
            name in held or name in result.missing for name, _ in self.place.versions
        )

    def run(self, problems: Sequence[GemmSignature], tell: Tell, watch: Watch) -> int:
        """Tune and measure the products; returns how many failed. What is done is kept, whatever happens to the rest.

        Args:
            problems: The products.
            tell: Called with each product and its result, or why it has none.
            watch: Called with each product before its search; gives what is told of the search.
        """
        failed = 0
        with Workers() as workers:
            for problem in problems:
                try:
                    with watch(problem) as listener:
                        found = self.tune(problem, workers, listener)
                    result = self.measure(problem, found)
                except FAILURES as error:
                    failed += 1
                    tell(problem, str(error))
                    continue
                tell(problem, result)
        return failed

    def tune(
        self, problem: GemmSignature, workers: Workers, listener: Listener | None = None,
        first: Sequence[tuple[str, str]] = (),
    ) -> TuneResult:  # fmt: skip
        """Search the product's fastest config; ``first`` are solvers with configs to begin with."""
        place = self.place
        return tune(
            problem, place.target, database=self.layers.writable, cache=self.cache, max_trials=self.trials,
            max_seconds=self.seconds, device=place.ordinal, external=False, workers=workers,
            progress=listener, first=first,
        )  # fmt: skip

    def measure(self, problem: GemmSignature, found: TuneResult) -> Result:
        """Time what a search found beside the rivals, and keep the result."""
        place = self.place
        if self._machine is None:
            self._machine = machine_of(place.target, self.cache, place.ordinal)
        launch = get_launchable(problem, target=place.target, device=place.device, mode="fast", external=False)
        times = bench(launch, self._machine, place.rivals, seconds=self.bench_seconds, tell=self.watch_rivals)
        if times.status == FAILED or times.time_us is None:
            raise LaunchError(times.reason)
        result = _result(problem, place, launch.solver, launch.config, times, found.new_trials, found.seconds)
        add_result(result)
        return result


def _theirs(them: Against, version: str) -> Theirs:
    return Theirs(them.time_us, them.mode, version, them.single_us)


def _result(
    problem: GemmSignature, place: Place, solver: str, config: str, times: Bench, trials: int, seconds: float
) -> Result:
    versions = dict(place.versions)
    return Result(
        problem=problem.canonical.key(), target=place.target.name, solver=solver, config=config,
        time_us=times.time_us or 0.0, spread_us=times.spread_us or 0.0,
        roofline=times.roofline or 0.0, trials=trials, seconds=seconds,
        date=datetime.now(UTC).isoformat(timespec="seconds"), generator=generator_digest(place.target.family),
        disturbed=times.reason, single_us=times.single_us,
        rivals={name: _theirs(them, versions[name]) for name, them in times.against.items()},
        missing=dict(times.missing),
    )  # fmt: skip

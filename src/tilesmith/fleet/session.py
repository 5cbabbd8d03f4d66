"""Tunes a list with the workers of an executor, and merges what they find into one database.

The client may be lost at any moment: the same call goes on from there (``fleet.journal``), and takes what the workers
have found meanwhile (``fleet.outbox``).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tilesmith.db.records import Record
from tilesmith.db.store import Database
from tilesmith.errors import FleetError
from tilesmith.fleet.estimate import expected_seconds, past_seconds
from tilesmith.fleet.executor import Executor, Place
from tilesmith.fleet.journal import Journal, name_of_run
from tilesmith.fleet.merging import Opened, keep, open_parcel
from tilesmith.fleet.spread import POLL_S, WAIT_S, Began, Failed, Finished, Heard, Job, Spread
from tilesmith.fleet.tasks import (
    CHECK,
    COLLECT,
    TUNE,
    Checked,
    Parcel,
    Reply,
    Task,
    encode,
    read_progress,
    read_reply,
)
from tilesmith.tune import progress

STARTS = 4  # of the known answers, to begin a search with
LATE_S = 120.0  # beyond twice its budget: then a search hangs
COLLECT_S = 60.0
MOST_ROUNDS = 1000  # of collecting
_log = logging.getLogger("tilesmith.fleet")


@dataclass(frozen=True)
class FleetOptions:
    """How a list is tuned.

    Args:
        strategy: As ``tune.session.tune``.
        trials: Largest number of configs of a problem; None: no limit.
        seconds: Seconds of a problem.
        seed: Of the random data and of the search.
        external: Whether PyTorch's kernels compete; None: the worker's default.
        check: Share of the answers that a second machine measures, from 0 to 1.
        wait_s: Seconds to wait for a worker, if there is none.
    """

    strategy: str = "model"
    trials: int | None = None
    seconds: float = 15.0
    seed: int = 0
    external: bool | None = None
    check: float = 0.05
    wait_s: float = WAIT_S


@dataclass(frozen=True)
class Tuned:
    """The answer of one problem on one target, and the worker that found it. ``ranking`` has each solver's best."""

    problem: str
    target: str
    worker: str
    ranking: tuple[Record, ...]
    parcel: Parcel

    @property
    def record(self) -> Record:
        return self.ranking[0]

    @property
    def speedup(self) -> float | None:
        """Untuned time over tuned time."""
        untuned = self.parcel.untuned_us
        return untuned / self.record.time_us if untuned and self.record.time_us else None


@dataclass(frozen=True)
class NotTuned:
    """A problem without an answer on a target."""

    problem: str
    target: str
    reason: str


@dataclass(frozen=True)
class Confirmed:
    """An answer that a second machine has measured."""

    problem: str
    target: str
    checked: Checked


Result = Tuned | NotTuned | Confirmed


class FleetRun:
    """One run over a list of canonical keys. ``results`` does the work, and hands out each answer when it is kept.

    Args:
        problems: Canonical keys.
        executor: Runs the tasks.
        database: Takes the records.
        options: How.
        watcher: Hears the events of ``tune.progress``; ``worker`` names the worker in each.
    """

    def __init__(
        self, problems: Sequence[str], executor: Executor, database: Database, options: FleetOptions,
        watcher: progress.Watcher = progress.silent,
    ) -> None:  # fmt: skip
        self._problems, self._database, self._options = tuple(dict.fromkeys(problems)), database, options
        self._watch = watcher
        self._executor = executor
        self._spread = Spread(executor, options.wait_s)
        asked = replace(options, check=0.0, wait_s=0.0)
        self.run = name_of_run([*sorted(self._problems), repr(asked), str(database.path)])
        self._journal = Journal(self.run)
        self._targets: set[str] = set()
        # By machine: parcels that it need not hold any longer. Two threads meet there: names are taken one by one.
        self._received: dict[str, deque[str]] = defaultdict(deque)
        self._kept: set[str] = set()  # names of parcels
        self._given_up: dict[tuple[str, str], str] = {}  # reasons
        self._hosts: dict[tuple[str, str], str] = {}  # which machine found an answer
        #: Counts of what came: problems settled before this client, answers that came twice, messages refused.
        self.before = self.twice = self.refused = 0
        #: Answers that a second machine has measured, and those of them that it confirmed.
        self.checked = self.agreed = 0

    def results(self) -> Iterator[Result]:
        """Every problem on every target of the fleet. Raises ``FleetError`` if there is no worker, or no scheduler."""
        with self._journal:
            self._await_workers()
            if self._journal.resumes:
                yield from self._collect()
            self.before = len(self._journal.done)
            self._add_targets()
            yield from self._work()
            yield from self._collect()  # which may have the answer of a problem that was given up
            for (problem, target), reason in self._given_up.items():
                if (problem, target) not in self._journal.done:
                    yield NotTuned(problem, target, reason)
            self._journal.finish()

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _await_workers(self) -> None:
        ends = time.monotonic() + self._options.wait_s
        while not self._spread.look():
            if time.monotonic() > ends:
                raise FleetError(
                    f"no worker that can be used came within {self._options.wait_s:.0f} s; start some with "
                    "`dask worker ADDRESS --nthreads 1`, or wait longer (--wait)"
                )
            time.sleep(POLL_S / 10)

    def _add_targets(self) -> None:
        """Add the list for each target that has come."""
        for target in sorted({place.target for place in self._spread.places} - self._targets):
            self._targets.add(target)
            todo = [problem for problem in self._problems if (problem, target) not in self._journal.done]
            known = [past_seconds([self._database], problem, target, self._options.seconds) for problem in todo]
            for problem, seconds in zip(todo, expected_seconds(known, self._options.seconds), strict=True):
                self._spread.add(self._job(problem, target, seconds))

    def _job(self, problem: str, target: str, seconds: float) -> Job:
        options = self._options
        best = [record for record in self._database.ranking(problem, target) if record.ok][:STARTS]
        task = Task(
            TUNE, self.run, problem, target, options.strategy, options.trials, options.seconds, options.seed,
            options.external, tuple((record.solver, record.config) for record in best),
        )  # fmt: skip
        return Job(
            _name(problem, target), partial(self._payload, task), target, 2 * options.seconds + LATE_S,
            seconds,
        )  # fmt: skip

    def _payload(self, task: Task, place: Place) -> bytes:
        names, received = self._received[place.host], []
        while names:
            received.append(names.popleft())
        return encode(replace(task, received=tuple(received)))

    def _work(self) -> Iterator[Result]:
        for outcomes in self._spread.run():
            came: list[tuple[Opened, Place]] = []
            for outcome in outcomes:
                problem, _, target = outcome.job.name.rpartition(" on ")
                if isinstance(outcome, Began):
                    if not outcome.job.avoid:
                        self._watch(progress.Began(problem, self._options.seconds, worker=outcome.place.name))
                elif isinstance(outcome, Heard):
                    self._hear(outcome)
                elif isinstance(outcome, Failed):
                    self._failed(outcome, problem, target)
                else:
                    reply = self._reply(outcome, problem)
                    if reply is not None:
                        came += [(each, outcome.place) for each in reply[1]]
                        yield from self._finished(outcome, reply[0], problem, target)
            yield from self._keep(came)
            self._add_targets()

    def _hear(self, outcome: Heard) -> None:
        try:
            told = read_progress(outcome.payload)
        except FleetError as error:
            _log.debug("worker %s: %s", outcome.place.name, error)
            return
        self._watch(replace(told, worker=outcome.place.name))

    def _failed(self, outcome: Failed, problem: str, target: str) -> None:
        if outcome.job.avoid:
            _log.warning("the answer for %s was not checked by a second machine: %s", problem, outcome.reason)
            return
        self._watch(progress.Ended(problem, progress.FAILED, reason=outcome.reason))
        self._given_up[problem, target] = outcome.reason

    def _reply(self, outcome: Finished, problem: str) -> tuple[Reply, list[Opened]] | None:
        """A sound reply with its new parcels; one that is not is refused, and the job begins again."""
        place = outcome.place
        try:
            reply = read_reply(outcome.payload)
            opened = [open_parcel(each) for each in self._fresh(reply, place)]
        except FleetError as error:
            self.refused += 1
            _log.warning("what worker %s sent for %s is refused: %s", place.name, problem, error)
            self._spread.again(outcome.job, place, f"its reply was refused: {error}")
            return None
        return reply, opened

    def _finished(self, outcome: Finished, reply: Reply, problem: str, target: str) -> Iterator[Result]:
        job, place = outcome.job, outcome.place
        if reply.checked is not None:
            self.checked += 1
            self.agreed += reply.checked.agrees
            self._tell_check(problem, target, reply.checked)
            yield Confirmed(problem, target, reply.checked)
        elif reply.error and reply.final:
            self._failed(Failed(job, reply.error), problem, target)
        elif reply.error:
            self._spread.again(job, place, reply.error)
        elif job.avoid or (problem, target) not in {(each.problem, each.target) for each in reply.parcels}:
            self._spread.again(job, place, "its reply holds no answer")

    # --- what came ------------------------------------------------------------------------------------------------

    def _keep(self, came: Iterable[tuple[Opened, Place]]) -> Iterator[Result]:
        """Keep what is sound: of two answers for a problem the first, of trials all."""
        parcels = {each.parcel.name: (each, place) for each, place in came}
        answers: dict[tuple[str, str], tuple[Opened, Place]] = {}
        for each, place in parcels.values():
            if each.key in self._journal.done or each.key in answers:
                self.twice += 1
            else:
                answers[each.key] = each, place
        keep([each for each, _ in parcels.values()], [each for each, _ in answers.values()], self._database)
        self._journal.settle(answers)
        for each, place in parcels.values():
            self._kept.add(each.parcel.name)
            self._received[place.host].append(each.parcel.name)
        for key, (each, place) in answers.items():
            self._spread.discard(_name(*key))
            self._hosts[key] = place.host
            yield self._tell(each, place)
            self._check(each, place)

    def _tell(self, opened: Opened, place: Place) -> Tuned:
        parcel, best = opened.parcel, opened.ranking[0]
        self._watch(
            progress.Ended(
                parcel.problem,
                progress.ANSWERED,
                best.solver,
                best.config,
                untuned_us=parcel.untuned_us,
                tuned_us=best.time_us,
                spread_us=best.spread_us,
                trials=len(opened.trials),
                new_trials=parcel.new_trials,
                failed=parcel.failed,
                seconds=parcel.seconds,
                ended=parcel.ended,
                disturbed=parcel.disturbed,
                worker=place.name,
            )  # fmt: skip
        )
        return Tuned(parcel.problem, parcel.target, place.name, opened.ranking, parcel)

    def _check(self, opened: Opened, place: Place) -> None:
        """Let a second machine measure the answer, if it is one of the sample and there is another machine."""
        problem, target = opened.key
        drawn = int(hashlib.sha256(f"{problem} {target}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
        others = any(each.target == target and each.host != place.host for each in self._spread.places)
        if drawn >= self._options.check or not others:
            return
        answers = tuple(line for line in opened.parcel.lines if '"tilesmith result ' in line[:40])
        task = Task(CHECK, self.run, problem, target, lines=answers)
        limit = 2 * self._options.seconds + LATE_S
        self._spread.add(Job(_name(problem, target), partial(self._payload, task), target, limit, avoid=place.host))

    def _tell_check(self, problem: str, target: str, checked: Checked) -> None:
        if not checked.agrees:
            here = "it cannot be timed" if checked.here_us is None else f"it takes {checked.here_us:.1f} us"
            _log.warning(
                "%s on %s: %s on %s, and %.1f us on %s; compare the two machines (clocks, power limits, other load)",
                problem, target, here, checked.host, checked.record_us, self._hosts.get((problem, target), "another"),
            )  # fmt: skip

    def _collect(self) -> Iterator[Result]:
        """Ask each machine for what it still holds, until it holds nothing."""
        hosts = {place.host for place in self._spread.look()}
        for _ in range(MOST_ROUNDS):
            collecting = Spread(self._executor, wait_s=POLL_S)
            collecting.look()
            for host in sorted(hosts):
                payload = partial(self._payload, Task(COLLECT, self.run))
                collecting.add(Job(f"collect from {host}", payload, "", COLLECT_S, host=host))
            hosts = set()
            for outcome in (each for outcomes in collecting.run() for each in outcomes):
                if isinstance(outcome, Failed):
                    _log.warning("%s: %s", outcome.job.name, outcome.reason)
                if not isinstance(outcome, Finished):
                    continue
                parcels = self._collected(outcome)
                yield from self._keep((each, outcome.place) for each in self._sound(parcels, outcome.place))
                if parcels:
                    hosts.add(outcome.place.host)
            if not hosts:
                return

    def _fresh(self, reply: Reply, place: Place) -> list[Parcel]:
        """The parcels of a reply that this client has not kept; those that it has are acknowledged once more."""
        again = [parcel.name for parcel in reply.parcels if parcel.name in self._kept]
        self._received[place.host].extend(again)
        return [parcel for parcel in reply.parcels if parcel.name not in self._kept]

    def _collected(self, outcome: Finished) -> tuple[Parcel, ...]:
        try:
            reply = read_reply(outcome.payload)
        except FleetError as error:
            _log.warning("what worker %s sent is refused: %s", outcome.place.name, error)
            return ()
        self._fresh(reply, outcome.place)
        return reply.parcels

    def _sound(self, parcels: Sequence[Parcel], place: Place) -> Iterator[Opened]:
        """New parcels whose records are sound; the machine need not hold the others either."""
        for parcel in parcels:
            if parcel.name in self._kept:
                continue
            try:
                yield open_parcel(parcel)
            except FleetError as error:
                self.refused += 1
                _log.warning("what worker %s held is refused: %s", place.name, error)
                self._received[place.host].append(parcel.name)


def _name(problem: str, target: str) -> str:
    return f"{problem} on {target}"

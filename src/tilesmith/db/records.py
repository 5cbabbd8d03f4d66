"""The records of databases: a config that was measured, with its evidence, and how a search went."""

from __future__ import annotations

from dataclasses import dataclass, replace

OK = "ok"
FAILED = "failed"
STATUSES = (OK, FAILED)


@dataclass(frozen=True)
class Record:
    """One config of one solver on one problem and target, as measured or as it failed.

    ``solver`` is a ``Candidate.name`` of the solver table, ``config`` the printed config, ``revision`` the solver's.
    ``time_us`` and ``spread_us`` are the median of ``run`` and its notch (``measure.timing``), ``prepare_us`` the time
    of ``prepare``, ``workspace`` bytes of scratch and packed filter. ``error`` is the largest error found by the check
    in units of ``bound``'s scale, so that ``error <= bound`` holds for every record that is ``ok``.
    ``origin`` says who measured: ``tune``, ``find`` (defaults only), ``verify`` (a shipped record, timed here) or
    ``import``.
    Times are None where nothing was measured; ``reason`` says why a failed one failed.
    """

    problem: str
    target: str
    solver: str
    config: str
    revision: int = 1
    time_us: float | None = None
    spread_us: float | None = None
    samples: int = 0
    prepare_us: float | None = None
    workspace: int = 0
    error: float | None = None
    bound: float | None = None
    status: str = OK
    reason: str = ""
    method: str = ""
    compiler: str = ""
    generator: str = ""
    host: str = ""
    date: str = ""
    origin: str = "tune"

    @property
    def ok(self) -> bool:
        """Checked, measured, and so free to be chosen."""
        return self.status == OK and self.time_us is not None

    def failed(self, reason: str) -> Record:
        """The same config with nothing measured and a reason."""
        return replace(self, status=FAILED, reason=reason, time_us=None, spread_us=None, samples=0)


@dataclass(frozen=True)
class Search:
    """A search that was run: how, for how long, and how it ended (``converged``, ``budget`` or ``interrupted``)."""

    problem: str
    target: str
    strategy: str
    seed: int
    trials: int
    seconds: float
    ended: str
    date: str

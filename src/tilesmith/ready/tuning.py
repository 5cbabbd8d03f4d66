"""``tilesmith.tune``: search the best config of a problem and remember it where the environment says."""

from __future__ import annotations

from typing import overload

from tilesmith.dispatch.eager import forget
from tilesmith.dispatch.locations import device_ordinal, lasting_databases, open_cache, target_of
from tilesmith.errors import ArgumentError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import parse_command
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.tune import session
from tilesmith.tune.session import TuneResult


@overload
def tune(
    problem: Signature,
    *,
    target: Target | str | None = None,
    device: str | None = None,
    threads: int | None = None,
    seconds: float | None = 15.0,
    trials: int | None = None,
    strategy: str = "model",
    external: bool | None = None,
) -> TuneResult: ...  # fmt: skip


@overload
def tune(
    problem: str,
    *,
    target: Target | str | None = None,
    device: str | None = None,
    threads: int | None = None,
    seconds: float | None = 15.0,
    trials: int | None = None,
    strategy: str = "model",
    external: bool | None = None,
) -> tuple[TuneResult, ...]: ...  # fmt: skip


def tune(
    problem: Signature | str, *, target: Target | str | None = None, device: str | None = None,
    threads: int | None = None, seconds: float | None = 15.0, trials: int | None = None, strategy: str = "model",
    external: bool | None = None,
) -> TuneResult | tuple[TuneResult, ...]:  # fmt: skip
    """Find the best config of a problem on this machine, and keep it in the default database and cache.

    ``problem`` is a signature, or a driver command, which may name several problems: then the results are a tuple.
    ``target``, ``device``, ``threads`` and ``external`` are those of ``get_launchable``. The search of each problem
    ends after ``seconds`` or ``trials`` configs (None: no limit). The next ``get_launchable`` of the problem finds what
    was tuned.

    Raises ``CommandError`` for a bad command, ``DatabaseError`` where nothing can be remembered, and what
    ``tilesmith.tune.session.tune`` raises.
    """
    if not isinstance(problem, str | ConvSignature | GemmSignature):
        raise ArgumentError(f"{type(problem).__name__} is neither a signature nor a driver command")
    commands = parse_command(problem).signatures if isinstance(problem, str) else (("", problem),)
    place = target_of(target, threads, device)
    ordinal = max(0, device_ordinal(device or place.family))
    layers, cache = lasting_databases(), open_cache()
    results = tuple(
        session.tune(
            each, place, database=layers.writable, cache=cache, strategy=strategy, max_trials=trials,
            max_seconds=seconds, device=ordinal, external=external,
        )
        for _, each in commands
    )  # fmt: skip
    forget()  # the next call finds what was tuned, in this process too
    return results if isinstance(problem, str) else results[0]

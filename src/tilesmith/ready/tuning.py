"""``tilesmith.tune``: search the best config of a problem and keep it in the default database and cache."""

from __future__ import annotations

from typing import overload

from tilesmith.dispatch.kept_calls import forget
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.errors import ArgumentError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import parse_problem
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.cuda_driver import device_ordinal
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
    """Search the best config of a problem on this machine, and keep it in the default database and cache.

    The next ``get_launchable`` of the problem uses the result.

    Args:
        problem: A signature, a driver command, or a key. A command may name several problems, one for each direction.
        target: The target, or its name, such as ``"x86_64-v3:2"``. It must run on this machine. None: the target of
            ``device``; for the CPU, this machine with ``threads`` threads.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``. None: the family of ``target``, else ``"cpu"``.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores.
        seconds: Time limit for each problem in seconds, above 0. None: no limit.
        trials: Largest number of configs for each problem, from 1. None: no limit.
        strategy: ``"model"``, ``"exhaustive"``, ``"random"``, ``"local"``, ``"evolutionary"`` or ``"defaults"``.
        external: Let PyTorch's own CUDA kernels compete in the playoff. None: True if PyTorch with CUDA is loaded and
            TILESMITH_EXTERNAL is not 0.

    Returns:
        A ``TuneResult`` for a signature; a tuple of them, one for each direction, for a command or key.

    Raises:
        ArgumentError: ``problem`` is neither a signature nor text.
        CommandError: The text is neither a command nor a key.
        DatabaseError: The database cannot be written, so the result would be lost.
        TargetError: The target or device does not exist or does not run here, or it contradicts ``threads``.
        NoSolutionError: No solver computes the problem, or no config works.
        NoCompilerError: There is no compiler.
        OutOfTimeError: The time limit was reached before there was an answer. Measured configs are kept.
        LaunchError: The problem is too large for the memory.
        InterruptedSearchError: Ctrl-C stopped the search. Measured configs are kept.

    Examples:
        >>> import tilesmith
        >>> result = tilesmith.tune(tilesmith.GemmSignature(m=24, n=32, k=16), threads=1, trials=1)
        >>> result.record.status
        'ok'
    """
    if not isinstance(problem, str | ConvSignature | GemmSignature):
        raise ArgumentError(f"{type(problem).__name__} is neither a signature nor text (a driver command or key)")
    commands = parse_problem(problem).signatures if isinstance(problem, str) else (("", problem),)
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

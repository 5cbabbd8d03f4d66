"""``get_launchable`` decides which kernel runs a problem, compiles the kernel, and returns a callable ``Launchable``.

A *hit* is a call that finds its decision on disk. Modules that a hit needs are imported at the top, so a hit itself
imports nothing. What reads databases is imported by the first call that is no hit, what decides (solvers, cost models)
by the first one whose choice or plan no earlier process has kept, and what reads kernel packages by the first call
where there are some; most processes never import them.
"""

from __future__ import annotations

import contextlib
import copyreg
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401
import numpy as np  # noqa: F401

from tilesmith import env
from tilesmith.db.layers import Layers
from tilesmith.db.store import Database
from tilesmith.db.waiting import one_call
from tilesmith.dispatch import hits
from tilesmith.dispatch.choice import DATABASE, PACKAGES, SPEC, Choice, Considered, Resolved
from tilesmith.dispatch.locations import (
    check_mode,
    named_databases,
    open_cache,
    strict_cache,
    target_of,
)
from tilesmith.dispatch.origin import Options, Origin, kept_filter, restored_filter
from tilesmith.dispatch.packages import Packages, forget_packages, installed_packages
from tilesmith.dispatch.plain import tell_of_plain
from tilesmith.dispatch.request import Request
from tilesmith.env import takes_part
from tilesmith.errors import (
    ArgumentError,
    CompileError,
    LaunchError,
    NoCompilerError,
    NoSolutionError,
    PlanError,
    TargetError,
    TilesmithError,
)
from tilesmith.log import start_logging
from tilesmith.plan.records import Plan, Slot
from tilesmith.problems import canonical, key_text  # noqa: F401
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.limits import refuse_empty
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.executable import Bound, Executable, Prepared
from tilesmith.runtime.torch_rules import between_graphs, capture_of_thread
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.target import Target
from tilesmith.toolchain import memo
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.plans import maker_of

if TYPE_CHECKING:
    from pathlib import Path


class _Decision:
    """One requested problem; ``launch`` is its launchable once a thread has decided the problem."""

    __slots__ = ("launch", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held by the thread that decides
        self.launch: Launchable | None = None


_lock = threading.Lock()  # guards _known and _logged; never held while a problem is decided
_known: dict[tuple[Any, ...], _Decision] = {}
_logged: set[Signature] = set()
_packages: Packages | None = None  # as the last call found them
_LIMIT = 4096
# Called with the problem and a function that makes the call; see ``watch_calls``.
Watcher = Callable[[Signature, Callable[[], Any]], Any]
_watcher: Watcher | None = None
_replaced: list[Callable[[], None]] = []
_log = logging.getLogger("tilesmith.dispatch")

ANYTHING = Options()
BACKGROUND = "background"


class Launchable:
    """A plan bound for calling: ``launchable(x, w)`` checks the tensors, makes the result, and runs the kernel.

    Made by ``get_launchable``. Several threads may call one launchable at once. In mode ``"background"`` the kernel and
    what describes it change once, when the problem has been measured; what ``prepare`` returned keeps its kernel.
    No gradient is recorded, not even for tensors that require one (``conv`` and ``gemm`` record it).

    A launchable, and the callable that ``prepare`` returns, can be copied and pickled. When another process loads it,
    the same kernel is found in the cache or compiled again. If that is impossible, for example on another machine,
    ``get_launchable`` decides again, and a warning is logged.

    Args:
        signature: The problem.
        target: The target that the plan was made for.
        resolved: The decision with its plan and compiled kernels.
        ordinal: Number of the CUDA device that was asked for. A call runs on the device of its tensors.
        options: The arguments of ``get_launchable``, to decide again after loading a pickle.

    Attributes:
        choice: The decision and its evidence.
        remembered: True if no kernel source had to be generated.
        exportable: True if the plan is the choice itself. False if a kernel of PyTorch was chosen: it takes PyTorch's
            tensors, and the plan takes all other tensors.
    """

    def __init__(
        self, signature: Signature, target: Target, resolved: Resolved, ordinal: int = 0, options: Options = ANYTHING
    ) -> None:
        self.signature = signature
        self.target = target
        self.ordinal = ordinal
        self.choice: Choice = resolved.choice
        self.remembered: bool = resolved.built.remembered
        self.executable = executable = Executable(resolved.built.serial, resolved.built.artifacts)
        # A callable written in C that checks the tensors, makes the result and runs. Faster than __call__.
        self.bound: Callable[..., Any] = executable.bind(signature)
        self.exportable = resolved.bind is None
        if resolved.bind is not None:
            plan = executable.plan
            self.origin = Origin(signature, target, self.choice, plan.solver, plan.config, options)
            self.bound.origin = self.origin
            self.bound = resolved.bind(signature, resolved.choice.config, self.bound)
        else:
            self.origin = Origin(signature, target, self.choice, self.choice.solver, self.choice.config, options)
            self.bound.origin = self.origin
        if _watcher is not None:
            self.bound = _Watched(signature, self.bound, _watcher)

    @between_graphs
    def __call__(self, *tensors: Any, out: Any = None) -> Any:
        """Run the plan.

        Args:
            *tensors: The operands, with the signature's shapes, strides and dtypes. Order: fwd ``x, w, [bias],
                [residual], [scale]``; bwd ``dy, w, [bias], [residual], [scale]``; wrw ``dy, x``; bgrad ``dy``; GEMM
                ``a, b, [group_ends], [bias], [residual], [scale], [c]``. On a CPU: NumPy arrays or PyTorch CPU tensors.
                On a CUDA device: tensors of PyTorch, CuPy, or any library with DLPack or
                ``__cuda_array_interface__``.
            out: Memory for the result, with the signature's result shape, strides and dtype. None: new memory. It
                shares no element with an operand, but may be the residual itself where ``bound.in_place`` says so.

        Returns:
            The result, of the kind of the first operand; ``out`` if it was given.

        Raises:
            ArgumentError: A tensor does not have the signature's shape, strides, dtype or device.
            LaunchError: The kernel could not be loaded or run.
        """
        return self.bound(*tensors, out=out)

    @between_graphs
    def prepare(self, filter_: Any) -> Callable[..., Any]:
        """Pack the filter once.

        Args:
            filter_: ``w`` of a ``fwd`` or ``bwd`` convolution, or ``b`` of a GEMM, with the signature's shape, strides
                and dtype. It must not change afterwards.

        Returns:
            A callable of the other operands, in the order of ``__call__``.

        Raises:
            ArgumentError: The tensor does not have the filter's shape, strides, dtype or device.
        """
        prepared: Callable[..., Any] = self.bound.prepare(filter_)  # type: ignore[attr-defined]
        return prepared

    def bound_for(self, lying: Sequence[Slot], exact: int = 2) -> Callable[..., Any]:
        """The plan bound for tensors with their axes in the order of ``lying``; it is watched as ``bound`` is.

        The first ``exact`` operands must have these very strides, those of unit axes too.
        """
        bound = self.executable.bind(self.signature, lying, exact)
        return bound if _watcher is None else _Watched(self.signature, bound, _watcher)

    def _become(self, measured: Launchable) -> None:
        """Run the kernel of ``measured`` from the next call on."""
        for name in ("choice", "remembered", "executable", "exportable", "origin", "bound"):
            setattr(self, name, getattr(measured, name))

    @property
    def plan(self) -> Plan:
        return self.executable.plan

    @property
    def prepares(self) -> bool:
        """Whether the plan packs its filter."""
        return self.executable.prepares

    @property
    def has_filter(self) -> bool:
        return isinstance(self.signature, GemmSignature) or self.signature.mode in ("fwd", "bwd")

    @property
    def solver(self) -> str:
        return self.choice.solver

    @property
    def config(self) -> str:
        return self.choice.config

    @property
    def trace(self) -> tuple[Considered, ...]:
        """One line for each candidate: why it was refused or not chosen, its predicted time and its measured time."""
        from tilesmith.dispatch.facts import with_predictions

        return with_predictions(self.choice.trace, self.signature, self.target)

    def __copy__(self) -> Launchable:
        return self  # immutable

    def __deepcopy__(self, memo: object) -> Launchable:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (self.origin,)

    def __repr__(self) -> str:
        return f"Launchable({self.signature.key()!r}, {self.target.name}, {self.solver} {self.config})"


class _Empty(Launchable):
    """The launchable of a problem without elements: nothing is decided, compiled or launched."""

    def __init__(self, signature: Signature, target: Target, options: Options) -> None:
        from tilesmith.dispatch.empty import EmptyBound

        self.signature, self.target, self.options = signature, target, options
        self.ordinal = 0
        self.choice = Choice("none", "", "definition", "", None, ())
        self.remembered = True
        self.exportable = True
        self.bound = EmptyBound(signature, target.family)

    @property
    def plan(self) -> Plan:
        refuse_empty(self.signature)
        raise AssertionError

    @property
    def prepares(self) -> bool:
        return False

    @property
    def trace(self) -> tuple[Considered, ...]:
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Empty, (self.signature, self.target, self.options)

    def __repr__(self) -> str:
        return f"Launchable({self.signature!r}, {self.target.name}, no elements)"


class _Watched:
    """A bound plan whose calls go through a watcher."""

    def __init__(self, signature: Signature, bound: Callable[..., Any], watcher: Watcher) -> None:
        self._signature, self._bound, self._watcher = signature, bound, watcher
        self.in_place: bool = getattr(bound, "in_place", False)

    def __call__(self, *tensors: Any, out: Any = None) -> Any:
        return self._watcher(self._signature, partial(self._bound, *tensors, out=out))

    def prepare(self, filter_: Any) -> _Watched:
        return _Watched(self._signature, self._bound.prepare(filter_), self._watcher)  # type: ignore[attr-defined]


def watch_calls(watcher: Watcher | None) -> None:
    """Pass every call of each launchable made from now on to ``watcher``, which makes the call. None: no watcher.

    Existing launchables do not change. This process forgets them, so the next ``get_launchable`` makes new ones.
    """
    global _watcher
    _watcher = watcher
    forget_launchables()


@between_graphs
def get_launchable(
    signature: Signature, *, target: Target | str | None = None, device: str | None = None, mode: str | None = None,
    threads: int | None = None, database: Layers | Database | str | os.PathLike[str] | None = None,
    cache: ArtifactCache | Path | str | None = None, only: str | None = None, external: bool | None = None,
    frozen: bool = True,
) -> Launchable:  # fmt: skip
    """Choose and compile the kernel for a problem, and return it as a callable.

    A second call with the same arguments returns the same launchable.

    Args:
        signature: The problem: a ``ConvSignature`` or a ``GemmSignature``.
        target: The target, or its name, such as ``"x86_64-v3:2"``. It must run on this machine. None: the target of
            ``device``; for the CPU, this machine with ``threads`` threads.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``. None: the family of ``target``, else ``"cpu"``.
        mode: ``"fast"``, ``"background"``, ``"hybrid"``, ``"normal"``, ``"trust_verify"`` or ``"strict"``. None:
            TILESMITH_FIND_MODE.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores.
        database: A path, a ``Database`` or ``Layers``. None: the layers of TILESMITH_DB_PATH.
        cache: A path or an ``ArtifactCache``. None: TILESMITH_CACHE_DIR.
        only: Name of the only solver to use. None: TILESMITH_ONLY_SOLVER.
        external: Let PyTorch's own CUDA kernels compete. If one of them is chosen, it runs for PyTorch's tensors, and
            the best generated kernel runs for all other tensors. None: True if PyTorch with CUDA is loaded and
            TILESMITH_EXTERNAL is not 0.
        frozen: The filter is packed once, by ``launchable.prepare``. False: each call packs it, and of measured
            kernels the one is chosen that takes the least time with that; ``conv`` and ``gemm`` ask so. Not in
            ``strict`` mode, which has the kernels that were prepared.

    Returns:
        The launchable. ``launchable.choice`` and ``launchable.trace`` say why it was chosen.

    Raises:
        ArgumentError: An argument has the wrong type, or ``mode`` does not exist.
        TargetError: The target or device does not exist or does not run here, or it contradicts ``threads``.
        NoSolutionError: No solver computes the problem, or ``strict`` mode has no answer.
        NoCompilerError: A kernel must be compiled, and there is no compiler.
        CompileError: The compiler refused the generated source.
        LaunchError: The compiled kernel cannot be loaded.

    Examples:
        >>> import tilesmith
        >>> signature = tilesmith.GemmSignature(m=4, n=3, k=8)
        >>> launchable = tilesmith.get_launchable(signature, threads=1)
        >>> launchable(*signature.get_sample_args(seed=0)).shape
        (4, 3)
    """
    if not isinstance(signature, ConvSignature | GemmSignature):
        raise ArgumentError(f"{type(signature).__name__} is no signature; make a ConvSignature or a GemmSignature")
    wanted, mode = mode, check_mode(mode)
    strict = mode == "strict"  # writes no file
    held = strict_cache(cache) if strict else open_cache(cache)
    if not signature.is_empty:
        memo.recall(held)
    target = target_of(target, threads, device)
    if env.LOG.is_set:
        start_logging()
    if env.LOG_CMD.get() and not signature.is_empty:
        log_command(signature)
    only = env.ONLY_SOLVER.get() if only is None else only
    if not isinstance(only, str):
        raise ArgumentError(f"only {only!r} is no solver's name")
    external = target.family == "cuda" and takes_part(external)
    if signature.is_empty:
        return _Empty(signature, target, Options(None if device is None else str(device), threads, wanted, None))
    named = named_databases(database)
    packages = installed_packages()
    if packages is not _packages:
        _tell_of_packages(packages)
    # What is deterministic keeps its kernel until ``forget``: each call of the process gives the same bits.
    seen = None if signature.deterministic else packages
    frozen = frozen or strict
    key = (signature, target, device, mode, named, str(held.directory), only, external, seen, frozen)
    with _lock:
        if len(_known) >= _LIMIT:
            _known.clear()
        asked = _known.setdefault(key, _Decision())
    if asked.launch is not None:
        return asked.launch
    with asked.lock:  # threads that ask for this problem wait here; threads that ask for other problems do not
        if asked.launch is None:
            ordinal = max(0, device_ordinal("cuda" if device is None else device))
            deciding = "fast" if mode == BACKGROUND else mode
            request = Request(signature, target, deciding, named, held, only, ordinal, external, packages, frozen)
            resolved = _packaged(request) or hits.recall(request)
            if resolved is None:
                from tilesmith.dispatch import untuned

                with one_call():
                    resolved = untuned.recall_built(request)
                    if resolved is None:
                        from tilesmith.dispatch import resolve

                        resolved = resolve.resolve(request)
                        hits.keep(request, resolved, resolve.recorded_hit)
            place = None if cache is None else str(held.directory)
            options = Options(None if device is None else str(device), threads, wanted, place)
            asked.launch = _loaded(request, resolved, options)
            if mode == BACKGROUND:
                _measure_later(request, resolved, asked.launch, options)
        return asked.launch


def _measure_later(request: Request, untuned: Resolved, launch: Launchable, options: Options) -> None:
    """Have the problem measured in the background, and then replace the untuned kernel."""
    if untuned.choice.basis in (DATABASE, SPEC, *PACKAGES):  # a hit imports nothing
        return
    from tilesmith.dispatch.background.jobs import Job, can_measure, measure_later

    def replace_kernel(measured: Resolved) -> None:
        now, before = measured.choice, untuned.choice
        if (now.solver, now.config) == (before.solver, before.config):
            launch.choice = now
            return
        if request.signature.deterministic:  # it gives the same bits at each call of a process
            return
        launch._become(_loaded(request, measured, options))
        for empty in _replaced:
            empty()

    if can_measure(request, untuned):
        measure_later(Job(request, replace_kernel, capture_of_thread()))


def _packaged(request: Request) -> Resolved | None:
    """The answer of a kernel package."""
    if not request.packages.state:
        return None
    from tilesmith.dispatch.packaged import recall

    return recall(request)


def _tell_of_packages(packages: Packages) -> None:
    """Have the tables of bound plans emptied: a package was installed, replaced or removed since the last look."""
    global _packages
    changed, _packages = _packages is not None, packages
    for empty in _replaced if changed else ():
        empty()


def when_replaced(empty: Callable[[], None]) -> None:
    """Call ``empty`` when a launchable has another kernel: for tables of bound plans that are kept elsewhere."""
    _replaced.append(empty)


def _loaded(request: Request, resolved: Resolved, options: Options) -> Launchable:
    """Load what was resolved. A CPU kernel that cannot be loaded is compiled again, at last into another folder; a
    kernel package that has such a one is left out.
    """
    signature, target, cache = request.signature, request.target, request.cache
    if target.family == "cpu" and not request.only:
        tell_of_plain(signature, target, resolved.choice.solver)
    attempts = 0
    while True:
        try:
            return Launchable(signature, target, resolved, request.device, options)
        except (LaunchError, PlanError) as error:
            is_packed = resolved.choice.basis in PACKAGES and (target.family == "cpu" or isinstance(error, PlanError))
            if is_packed and request.packages.drop_file(resolved.choice.layer, error):
                from tilesmith.dispatch.resolve import resolve

                resolved = resolve(request)
                continue
            if isinstance(error, PlanError):
                raise
            attempts += 1
            anew = attempts == 1 and cache.refuse(resolved.built.artifacts, error)
            if request.strict or target.family != "cpu" or not (anew or cache.give_up(error)):
                raise
        from tilesmith.dispatch.planning import build
        from tilesmith.solvers.table import candidates

        plan = resolved.built.plan
        (candidate,) = candidates(signature, target, (plan.solver,))
        resolved = replace(resolved, built=build(request, candidate, plan.config))


# --- copies and saved models ------------------------------------------------------------------------------------------


def _made_again(origin: Origin) -> Launchable:
    """The launchable with the saved kernel; decides again if this machine or this version cannot have that kernel."""
    asked, mode = origin.options, check_mode(origin.options.mode)
    held = strict_cache(asked.cache) if mode == "strict" else open_cache(asked.cache)
    ordinal = max(0, device_ordinal(asked.device or "cuda"))
    packages = installed_packages()
    request = Request(origin.signature, origin.target, mode, named_databases(), held, device=ordinal, packages=packages)
    try:
        resolved = _same_kernel(request, origin)
    except (TargetError, PlanError, NoSolutionError, NoCompilerError, CompileError) as error:
        _log.warning("%s %s, which was saved, is not to be had here (%s)", origin.solver, origin.config, error)
        return get_launchable(
            origin.signature, device=asked.device, threads=asked.threads, mode=asked.mode, cache=asked.cache
        )
    return _loaded(request, resolved, asked)


def _same_kernel(request: Request, origin: Origin) -> Resolved:
    from tilesmith.dispatch.planning import build
    from tilesmith.solvers.solver import Accepted
    from tilesmith.solvers.table import candidates, external_solver

    target = target_of(origin.target, None, origin.options.device)
    library = external_solver(origin.choice.solver)
    if library is not None and not library.is_here():
        raise NoSolutionError(f"{origin.choice.solver} does not take part here")
    found = [
        each for each in candidates(origin.signature, target, (origin.solver,)) if isinstance(each.verdict, Accepted)
    ]
    if not found:
        raise NoSolutionError(f"{origin.solver} does not compute this problem here")
    built = build(replace(request, target=target), found[0], origin.config)
    return Resolved(origin.choice, built, None if library is None else library.bind)


def _bound_again(origin: Origin) -> Any:
    return _made_again(origin).bound


def _prepared_again(origin: Origin, filter_: Any) -> Any:
    return _made_again(origin).prepare(restored_filter(origin.signature, filter_))


def _origin_of(bound: Any) -> Origin:
    origin: Origin | None = bound.origin
    if origin is None:
        raise TypeError(
            "a plan that was bound by hand cannot be saved; save the Launchable of get_launchable(signature)"
        )
    return origin


def _reduced_bound(bound: Bound) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return _bound_again, (_origin_of(bound),)


def _reduced_layer(layer: Prepared) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return _prepared_again, (_origin_of(layer.bound), kept_filter(layer.packed.filter))


copyreg.pickle(Bound, _reduced_bound)
copyreg.pickle(Prepared, _reduced_layer)


def forget_launchables() -> None:
    """Make the next ``get_launchable`` of each problem decide again."""
    with _lock:
        _known.clear()
        _logged.clear()
    forget_packages()


def log_command(signature: Signature) -> None:
    """Print a problem as a driver command to stderr, once."""
    with _lock:
        if signature in _logged:
            return
        _logged.add(signature)
    from tilesmith.problems.driver import command_or_key

    sys.stderr.write(f"{command_or_key(signature)}\n")  # one write, so that lines of threads do not mix
    sys.stderr.flush()


def _look_ahead() -> None:
    """Read the machine's target and the generator's digest from the cache that the environment names at import.

    Every process needs both, so they are read with the import and not in the first call. A call reads the environment
    again; if it names another cache by then, the call reads that cache.
    """
    with contextlib.suppress(TilesmithError, OSError):
        installed_packages()
        if env.CACHE_ON.get() and memo.recall(open_cache()):
            maker_of(target_of(None, None))


_look_ahead()

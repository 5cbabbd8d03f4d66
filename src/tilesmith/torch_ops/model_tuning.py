"""``tilesmith.tune_model``: tunes the convolutions and products of a PyTorch model where the time is worth most."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tilesmith import env
from tilesmith.dispatch.kept_calls import forget
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.errors import ArgumentError
from tilesmith.ready.console import live_console
from tilesmith.ready.held import Place
from tilesmith.ready.model_records import Listener, ModelResult
from tilesmith.ready.model_session import tune_problems
from tilesmith.ready.watch import Watch, tasks_of
from tilesmith.ready.watch_display import watching
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.torch_ops.trace import Trace


def tune_model(
    fn: Callable[..., Any], *args: Any, seconds: float = 600.0, backward: bool = False, device: str | None = None,
    threads: int | None = None, external: bool | None = None, progress: Listener | None = None,
) -> ModelResult:  # fmt: skip
    """Run a model once, and tune the problems that it meets into the default database and cache.

    First the default configs and PyTorch's own operator are measured for each problem, then the time goes to the
    problems whose calls take longest and which are farthest from the limits of the machine. A second run begins where
    the first ended. Ctrl-C ends it early and keeps all results.

    Args:
        fn: Any callable, for example a ``torch.nn.Module``. It is called once, with its side effects (such as the
            running statistics of a batch norm in training mode). What ``torch.compile`` made runs uncompiled.
        *args: Its arguments.
        seconds: Time for tuning in seconds, from 5. The run of ``fn`` does not count.
        backward: Also run the backward pass of the sum of all floating-point results. Gradients of parameters are as
            before afterwards. ``fn`` must be a module. (A callable can run its backward pass itself.)
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``: where the problems are tuned. None: the device of most tensors
            that were met.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores.
        external: Let PyTorch's own CUDA kernels compete. None: True if PyTorch with CUDA is loaded and
            TILESMITH_EXTERNAL is not 0.
        progress: Function that is called with each ``ModelProgress``. None: a bar on stderr if that is a terminal.

    Returns:
        A ``ModelResult``: one ``ModelRow`` for each problem; ``print(result)`` shows the table.

    Raises:
        ArgumentError: ``fn`` cannot be called, ``seconds`` is below 5, or ``backward`` is given for a callable that is
            no module.
        DatabaseError: The database cannot be written, so the results would be lost.
        TargetError: The device does not exist or does not run here.
        NoCompilerError: There is no compiler.

    Examples:
        >>> import tilesmith, torch
        >>> result = tilesmith.tune_model(torch.nn.Linear(8, 4), torch.ones(2, 8), seconds=5, threads=1)
        >>> [(row.calls, row.signature.k) for row in result.rows]
        [(1, 8)]
    """
    if not callable(fn):
        raise ArgumentError(f"{type(fn).__name__} cannot be called; pass a module or a function")
    check_seconds(seconds)
    module = fn if isinstance(fn, torch.nn.Module) else None
    if backward and module is None:
        raise ArgumentError("backward=True needs a torch.nn.Module; run the backward pass inside of the callable")
    lasting_databases()  # raises before the model runs
    trace = Trace()
    with only_watched(), trace:
        result = fn(*args)
        if backward and module is not None:
            _backward(module, args, result)
    return tune_trace(
        trace, seconds=seconds, device=device, threads=threads, external=external, progress=progress
    )  # fmt: skip


def check_seconds(seconds: float) -> None:
    """Raise ``ArgumentError`` if ``seconds`` is no time for tuning."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 5 <= seconds < float("inf"):
        raise ArgumentError(f"seconds {seconds!r} is not a number from 5")


def tune_trace(
    trace: Trace, *, seconds: float, device: str | None = None, threads: int | None = None,
    external: bool | None = None, progress: Listener | None = None, lines: bool = False,
) -> ModelResult:  # fmt: skip
    """Tune what a trace has met; the arguments are those of ``tune_model``.

    Without ``progress`` the state is drawn on stderr if that is a terminal; with ``lines`` it is told elsewhere, too.
    """
    name = trace.device if device is None else device
    target = target_of(None, threads if name == "cpu" else None, name)
    place = Place(target, max(0, device_ordinal(name)), lasting_databases(), open_cache(), external)
    before = torch.get_num_threads()
    shown = progress is None and (lines or live_console() is not None)
    watch = Watch(tasks_of(trace.problems.items()), total_s=seconds)
    try:
        with watching(watch, ends=False) if shown else nullcontext(watch) as watcher:
            return tune_problems(
                trace.problems, place, seconds=seconds, others=trace.others, progress=progress, watcher=watcher
            )
    finally:
        torch.set_num_threads(before)  # measuring PyTorch sets the target's
        forget()  # the next call finds what was tuned


@contextmanager
def only_watched() -> Iterator[None]:
    """Inside, calls of Tilesmith measure nothing: the model runs once, on untuned choices where nothing is known."""
    name = env.FIND_MODE.name
    before = os.environ.get(name)
    os.environ[name] = "fast"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _backward(module: torch.nn.Module, args: tuple[Any, ...], result: Any) -> None:
    """The gradients of the sum of all results; no tensor's ``grad`` changes."""
    results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    wanted: list[torch.Tensor] = [p for p in module.parameters() if p.requires_grad]
    wanted += [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not results or not wanted:
        raise ArgumentError("backward=True, and no result requires a gradient; is a parameter or argument trained?")
    total = torch.stack([leaf.float().sum() for leaf in results]).sum()
    torch.autograd.grad(total, wanted, allow_unused=True)

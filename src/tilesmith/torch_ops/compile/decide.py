"""Decides for each problem of a graph whether Tilesmith's kernel or PyTorch's runs it. Nothing is measured here.

A database decides where it holds the problem. Else the cost model names the best kernel, and ``expectation`` says from
published measurements whether kernels of that kind win against PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from tilesmith import env
from tilesmith.dispatch.background import ahead
from tilesmith.dispatch.choice import DATABASE, NEAREST, PACKAGES, SPEC, Choice
from tilesmith.dispatch.locations import named_databases, open_cache, strict_cache, target_of
from tilesmith.dispatch.packages import installed_packages
from tilesmith.dispatch.request import Request
from tilesmith.env import takes_part
from tilesmith.errors import NoSolutionError, PlanError, ProblemError, TilesmithError
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.torch_ops.compile.expectation import expectation
from tilesmith.torch_ops.compile.races import remembered_race


@dataclass(frozen=True)
class Decision:
    """Whether Tilesmith's kernel runs a problem, and why.

    Args:
        ours: True if it does.
        reason: Why, in words.
        signature: The problem; None where no signature describes it.
        solver: Kernel family that the databases or the cost model name.
        time_us: Its measured or predicted time in microseconds.
        measured: True if a database decided.
        config: Of the kernel family.
    """

    ours: bool
    reason: str
    signature: Signature | None = None
    solver: str = ""
    time_us: float | None = None
    measured: bool = False
    config: str = ""


def find_mode() -> str:
    """How decisions, and the operators of a compiled graph, find kernels: nothing is measured."""
    return "strict" if env.FIND_MODE.get() == "strict" else "fast"


def request_of(signature: Signature, target: Target, mode: str, packed: bool) -> Request:
    """The request of a call in a compiled graph, as the environment completes it."""
    cache = strict_cache(None) if mode == "strict" else open_cache()
    return Request(
        signature, target, mode, named_databases(), cache, env.ONLY_SOLVER.get(), 0,
        target.family == "cuda" and takes_part(None), installed_packages(),
        frozen=packed or mode == "strict",  # as ``get_launchable`` is asked for the call
    )  # fmt: skip


def _choice_of(request: Request) -> Choice:
    """The databases' answer or the estimates' choice as an earlier process kept it: then no solver is imported."""
    from tilesmith.dispatch import hits, untuned  # layers on a CPU are raced, and need no decision
    from tilesmith.dispatch.answers import as_held

    found = None
    if not (request.only or request.packages.state):
        hit = hits.recall(request)
        found = untuned.recall(as_held(replace(request, databases=request.layers))) if hit is None else hit.choice
    if found is None:
        from tilesmith.dispatch.resolve import explained

        found = explained(replace(request, databases=request.layers), kept=True)
    return found


class Decider:
    """Decisions for the graphs of one compilation on one device, and the mode in which their operators find kernels.

    A compiled graph must not be interrupted by a measurement: its operators take what a database holds, else the
    untuned choice.

    Args:
        device: ``"cpu"`` or ``"cuda:N"``.
        ours: ``"auto"``, ``"always"`` or ``"never"``.
        pinned: Decisions of another process that must hold here, by key of the problem.
        packed: Whether filters are constants of the graph, so that they are packed once.
    """

    def __init__(
        self, device: str, ours: str = "auto", pinned: Mapping[str, bool] | None = None, *, packed: bool = False
    ) -> None:
        self.device, self.ours, self.pinned, self.packed = device, ours, pinned or {}, packed
        self.target: Target = target_of(None, None, device)
        self.mode = find_mode()
        self.raced = self.target.family == "cuda" and takes_part(None)
        self._known: dict[Signature, Decision] = {}
        self._expected: dict[Signature, Future[str]] = {}

    def expect(self, makes: Iterable[Callable[[], Signature]]) -> None:
        """Have other processes estimate the problems that will be asked about, if there are any."""
        for make in makes if ahead.runs() and self.ours != "never" else ():
            try:
                signature = make()
            except ProblemError:
                continue
            if signature not in self._expected:
                self._expected[signature] = ahead.decide_ahead(self._request(signature))

    def __call__(self, make: Callable[[], Signature]) -> Decision:
        """The decision for the problem that ``make`` describes; it raises ``ProblemError`` where none does."""
        if self.ours == "never":
            return Decision(False, "option ours='never'")
        try:
            signature = make()
        except ProblemError as error:
            return Decision(False, str(error))
        found = self._known.get(signature)
        if found is None:
            found = self._known[signature] = self._decide(signature)
        return found

    def in_place(self, decision: Decision) -> bool:
        """Whether the kernel of a decision can write its result over the residual.

        Of GPUs' kernels none says so.
        """
        if self.target.family != "cpu" or decision.signature is None:
            return False
        from tilesmith.dispatch.planning import existing_config  # of solvers: most decisions need none
        from tilesmith.solvers.table import candidates

        chosen = next(iter(candidates(decision.signature, self.target, names=(decision.solver,))), None)
        if chosen is None:
            return False
        try:
            config = existing_config(chosen, decision.config, self.target)
        except PlanError:  # of a record that another program wrote: a call uses the next best
            return False
        return chosen.solver.draft(chosen.geometry, config, self.target).in_place

    def _request(self, signature: Signature) -> Request:
        return replace(request_of(signature, self.target, self.mode, self.packed), external=self.raced)

    def _decide(self, signature: Signature) -> Decision:
        expected = self._expected.pop(signature, None)
        if expected is not None:
            expected.result()
        request = self._request(signature)
        try:
            choice = _choice_of(request)
        except NoSolutionError as error:
            return Decision(False, str(error), signature)
        except TilesmithError as error:
            return Decision(False, f"no decision: {error}", signature)
        decision = self._judged(signature, choice)
        pinned = self.pinned.get(signature.key(), decision.ours)
        if pinned != decision.ours:
            decision = replace(decision, ours=pinned, reason="as the first process of this job decided")
        return decision

    def _judged(self, signature: Signature, choice: Choice) -> Decision:
        packed = choice.basis in PACKAGES
        measured = choice.basis in (DATABASE, NEAREST, SPEC) or (packed and choice.time_us is not None)
        time_us = choice.time_us
        if time_us is None:
            time_us = next((line.predicted_us for line in choice.trace if line.chosen), None)

        def said(ours: bool, reason: str) -> Decision:
            return Decision(ours, reason, signature, choice.solver, time_us, measured, choice.config)

        if choice.solver.startswith("torch"):
            return said(False, f"PyTorch's kernel {choice.solver} is the fastest in {choice.layer}")
        # A search on a GPU races PyTorch's kernels too; on a CPU it knows ours alone.
        if measured and self.raced:
            return said(True, f"{choice.basis}: {choice.layer}")
        if self.ours == "always":
            return said(True, "option ours='always'")
        raced = remembered_race(signature, self.target) if self.target.family == "cpu" else None
        if raced is not None:
            return said(raced[0] <= raced[1], f"measured: {raced[0]:.1f} us, PyTorch {raced[1]:.1f} us")
        if self.mode == "strict" and not measured and not packed:
            return said(False, "strict mode, and neither a database nor a package holds it")
        return said(*expectation(signature, choice.solver, self.target, self.packed))

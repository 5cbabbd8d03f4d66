"""Solvers of first layers for last layers: x and y change places, and the taps of the filter their order.

With steps of 1, backward data is a convolution of dy with the filter turned round, and backward weights are sums over x
of what they are over dy: ``dw[k, c, r] = sum over p of dy[k, p] * x[c, p + r - padding]`` has the form of
``dw[c, k, R - 1 - r] = sum over q of x[c, q] * dy[k, q - r + padding]``. So where y has few channels and x many,
kernels for few channels of x compute them. Nothing is moved: the filter is read from its last tap on.

The sums are the same but for zeros: those around dy are multiplied, those around x are not. That matters where they
would meet an Inf or a NaN, so a launch behind computes anew what such an element can have reached.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.plan.records import Draft, Pointer, Space
from tilesmith.plan.slots import slot_names, span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.features import features_of
from tilesmith.problems.geometry import ConvGeometry, TensorView, Triple
from tilesmith.solvers import reasons
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.cuda.mirrored.draft import mending
from tilesmith.solvers.delegating import Delegating
from tilesmith.solvers.relayout import added, rebased
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, refusal, remembered
from tilesmith.targets.target import CudaTarget

_MIRRORED = {"bwd": "fwd", "wrw": "wrw"}
_PLACES = {"x": "y", "y": "x"}
_MEND_S = 1.3e-6  # a guess: of the launch that looks for what is no number
_MOST_BYTES = 2**31 - 1  # of the filter, from the first to the last element: its steps are integers of 32 bits


class Mirrored(Delegating[CudaTarget]):
    """Backward data and weights with steps of 1, in which x and y change places: few channels of y instead of x.

    ``inner`` computes ``fwd`` or ``wrw``, and takes any strides of the filter, negative ones too.
    """

    def __init__(self, inner: Solver[CudaTarget]) -> None:
        self.inner = inner
        self.name = f"{inner.name}_mirrored"
        own = {name for name, of in _MIRRORED.items() if of in inner.features}
        self.features = inner.features - {"fwd", "wrw", "stride"} | own

    @property
    def revision(self) -> int:
        return self.inner.revision

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        changed, w = self.changed(problem), problem.w
        if min(*changed.padding, *changed.padding_high) < 0:
            return Rejected(reasons.FILTER, f"filter {problem.filter} with padding {problem.padding}")
        if span_bytes(w.dtype, w.shape, w.strides) > _MOST_BYTES:
            return Rejected(reasons.SIZE)
        return refusal(self.inner.features, features_of(changed)) or self.inner.applicable(changed, target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return self.inner.predict(self.changed(problem), config, target) + _MEND_S

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        changed = self.changed(problem)
        draft = self.inner.draft(changed, config, target)
        assert isinstance(problem, ConvGeometry)
        own = {name: slot for slot, name in enumerate(slot_names(problem))}
        moved = {
            slot: Pointer(Space.SLOT, own[_PLACES.get(name, name)], _last_tap(problem.w) if name == "w" else 0)
            for slot, name in enumerate(slot_names(changed))
        }
        run, prepare = (tuple(rebased(step, moved) for step in steps) for steps in (draft.run, draft.prepare))
        sources = list(draft.sources)
        last = added(sources, *mending(problem, target))
        return replace(draft, sources=tuple(sources), run=(*run, last), prepare=prepare)

    def changed(self, problem: Geometry) -> ConvGeometry:
        """``problem`` as ``inner`` computes it; the strides of the filter's taps are negative."""
        assert isinstance(problem, ConvGeometry)
        g, w = problem, problem.w
        reach = tuple(step * (taps - 1) for step, taps in zip(g.dilation, g.filter, strict=True))
        k, c, *taps = w.strides
        shape = (w.shape[1], w.shape[0], w.shape[2], w.shape[3], w.shape[4])
        view = replace(w, shape=shape, strides=(c, k, -taps[0], -taps[1], -taps[2]))
        return replace(
            g, direction=_MIRRORED.get(g.direction, g.direction), c=g.k, k=g.c, input=g.output, output=g.input,
            padding=_rest(reach, g.padding), padding_high=_rest(reach, g.padding_high), x=replace(g.y, name="x"),
            y=replace(g.x, name="y"), w=view,
        )  # fmt: skip


def _rest(reach: tuple[int, ...], padding: Triple) -> Triple:
    d, h, w = (whole - part for whole, part in zip(reach, padding, strict=True))
    return d, h, w


def _last_tap(w: TensorView) -> int:
    """Bytes from the first tap of the filter to the last."""
    steps = zip(w.shape[2:], w.strides[2:], strict=True)
    return sum((size - 1) * step for size, step in steps) * dtype(w.dtype).nbytes

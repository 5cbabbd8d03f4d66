"""The dense solver: convolution forward and backward data (any stride, dilation, groups) and GEMM from one template."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Memset, Parameter, Pointer, Source, Space, Step
from tilesmith.problems.features import GEMM, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.dense.cost import predicted_seconds
from tilesmith.solvers.c.dense.form import MAX_EXTENT, DenseForm, dense_form
from tilesmith.solvers.c.dense.pack_text import filter_text
from tilesmith.solvers.c.dense.space import AXES, dense_default, dense_space, smallest_item
from tilesmith.solvers.c.dense.text import kernel_text
from tilesmith.solvers.c.dense.tile import NOTE_BYTES, Tiling
from tilesmith.solvers.c.reference.solver import guarded_reference
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, Unranked, remembered
from tilesmith.targets.fits.choose import cpu_fit_of
from tilesmith.targets.target import CpuTarget


class DenseSolver(Unranked):
    """Register tiles of pixels times channels over a packed filter; x is read as it lies or from a packed strip."""

    name = "c_dense"
    revision = 5
    features = USUAL | GEMM | WINDOW | {"fwd", "bwd", "groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        form = dense_form(problem)
        if isinstance(form, Rejected):
            return form
        # Narrow groups leave most lanes of a vector idle: the grouped kernels are better there.
        if form.groups > 1 and isinstance(problem, ConvGeometry) and 2 * form.k < target.lanes(4):
            return Rejected(reasons.GROUPS, f"{form.k} channels a group")
        reach = sum(
            max(abs(form.first_tap[i]), abs(form.last_tap[i])) * abs(form.x_strides[3 + i]) for i in range(3)
        )  # fmt: skip
        if max(reach, form.c * len(form.taps)) > MAX_EXTENT:
            return Rejected(reasons.SIZE)
        space = dense_space(form, target)
        if not space.contains(smallest_item(space)):
            return Rejected(reasons.SIZE, "the shortest strip")
        return Accepted()

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        return dense_space(_form(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        return dense_default(_form(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        return predicted_seconds(Tiling(_form(problem), config, target), cpu_fit_of(target).dense)

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        form = _form(problem)
        t = Tiling(form, config, target)
        # fwd multiplies the zeros of the padding as the definition does; bwd has no products there.
        guarded = isinstance(problem, ConvGeometry) and problem.direction == "bwd" and form.has_halo
        tile = f"m{t.mh}x{t.mw}v{config['vectors']}"
        op = "dense" + ("gemm" if form.flat else "")
        prelude = c_prelude(target)
        run_source = make_source("c", op, _dtypes(form), tile, target.arch, prelude, kernel_text(t, guarded))
        pack_source = make_source("c", "densefilter", _dtypes(form), tile, target.arch, prelude, filter_text(t))
        note = Pointer(Space.PACKED)
        prepare: tuple[Step, ...] = (Memset(note, NOTE_BYTES), _filter_launch(t, pack_source))
        run: tuple[Step, ...] = (_run_launch(t, run_source),)
        sources: tuple[Source, ...] = (run_source, pack_source)
        if guarded:
            reference, launch = guarded_reference(problem, target, note)
            sources += (reference,)
            run += (replace(launch, artifact=2),)
        return Draft(sources, run, prepare, packed_bytes=t.packed_bytes)


def _form(problem: Geometry) -> DenseForm:
    form = dense_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the dense solver does not cover this problem: {form}")
    return form


def _dtypes(form: DenseForm) -> str:
    names = (form.x_dtype, form.w_dtype, form.y_dtype)
    return names[0] if len(set(names)) == 1 else "".join(names)


def _run_launch(t: Tiling, source: Source) -> Launch:
    pointers: list[Parameter] = [Pointer(Space.SLOT, 0), Pointer(Space.PACKED)]
    pointers += [Pointer(Space.SLOT, i) for i in range(2, t.form.slots)]
    numbers = [Integer(t.form.images), Integer(t.form.count[2]), Integer(t.col_blocks)]
    return Launch(
        0, source.symbol, (t.items, 1, 1), (*pointers, *numbers), (t.items_at_once, 1, 1), shared_bytes=t.strip_bytes
    )


def _filter_launch(t: Tiling, source: Source) -> Launch:
    segments = sum(t.segment_count(phase) for phase in t.form.phases)
    items = t.form.groups * t.c_blocks * t.blocks * segments
    strides = [Integer(stride) for stride in t.form.w_strides]
    return Launch(1, source.symbol, (max(items, 1), 1, 1), (Pointer(Space.SLOT, 1), Pointer(Space.PACKED), *strides))

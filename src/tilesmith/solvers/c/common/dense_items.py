"""Items of threads and drafts of kernels, for the two families of dense problems (``dense`` and ``tiles``)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.plan.records import Draft, Integer, Memset
from tilesmith.solvers.c.common.dense_form import DenseForm
from tilesmith.solvers.c.common.family import PACKED, Kernel, assembled, items_a_turn, slot
from tilesmith.solvers.c.reference.solver import guarded_reference
from tilesmith.solvers.solver import Config, Geometry, cached_property
from tilesmith.targets.target import CpuTarget

NOTE_BYTES = 64  # the packed filter begins with a note: int32 1 if an element is not finite


@dataclass(frozen=True)
class DenseItems:
    """A config applied to a form: an item is a block of rows and columns of each phase, times one of ``channel_groups``
    groups of blocks of output channels."""

    form: DenseForm
    config: Config
    target: CpuTarget

    @cached_property
    def value(self) -> dict[str, int]:
        return dict(self.config.values)

    @property
    def blocks(self) -> int:
        """Blocks of output channels of one group."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Output indices of an item, and in each row those of ``cols``."""
        raise NotImplementedError

    @property
    def cols(self) -> int:
        raise NotImplementedError

    @cached_property
    def block_groups(self) -> int:
        return min(self.value["channel_groups"], self.blocks)

    @cached_property
    def row_blocks(self) -> int:
        return -(-self.form.count[1] // self.rows)

    @cached_property
    def col_blocks(self) -> int:
        """For this number of columns (of a flat form: rows of the matrix)."""
        return -(-self.form.count[2] // self.cols)

    @cached_property
    def places(self) -> int:
        """Strips of one image and group."""
        return self.form.count[0] * self.row_blocks * self.col_blocks

    @cached_property
    def items(self) -> int:
        return self.form.images * self.form.groups * self.places * self.block_groups

    @cached_property
    def items_at_once(self) -> int:
        """Items handed out together: whole strips where they are shared, unless that leaves a thread few turns."""
        together, turns = items_a_turn(self.items, self.target), 8 * self.target.cores
        if self.block_groups > 1 and not self.value["groups_outer"] and self.items // turns >= self.block_groups:
            together = -(-together // self.block_groups) * self.block_groups
        return together


def item_text(t: DenseItems, y: str) -> str:
    """C: where item ``item`` lies: its group of channels, image, group, rows and columns; and its result ``yb``."""
    form = t.form
    split = (
        "ts_i64 kg = item / places, nb = item % places;"
        if t.value["groups_outer"]
        else f"ts_i64 kg = item % {t.block_groups}, nb = item / {t.block_groups};"
    )
    return f"""    {split}
    ts_i64 ox = nb % col_blocks * {t.cols}, rest = nb / col_blocks;
    ts_i64 oy = rest % {t.row_blocks} * {t.rows};
    rest /= {t.row_blocks};
    ts_i64 oz = rest % {form.count[0]}, g = rest / {form.count[0]} % {form.groups};
    ts_i64 n = rest / {form.count[0] * form.groups};
    ts_i64 rows = {form.count[1]} - oy < {t.rows} ? {form.count[1]} - oy : {t.rows};
    ts_i64 cols = columns - ox < {t.cols} ? columns - ox : {t.cols};
    {y} *yb = y0 + n * {form.y_strides[0]}LL + g * {form.y_strides[1]}LL;
    (void)rows;
"""


@dataclass(frozen=True)
class DenseTexts:
    """The texts of a draft, the beginning of their names, their types and the config's name in symbols; ``pieces`` are
    the items of the filter's kernel, ``scratch`` the bytes of a thread of the other."""

    name: str
    dtypes: str
    tag: str
    run: str
    pack: str
    pieces: int
    scratch: int
    packed: int
    in_place: bool


def dense_draft(problem: Geometry, t: DenseItems, texts: DenseTexts, guarded: bool) -> Draft:
    """The filter is packed once, and noted if it is not finite; ``guarded``: the reference follows, for such a one."""
    form = t.form
    sizes = (Integer(form.images), Integer(form.count[2]), Integer(t.col_blocks))
    others = (slot(i) for i in range(2, form.slots))
    run = Kernel(
        f"{texts.name}gemm" if form.flat else texts.name, texts.dtypes, texts.run, t.items,
        (slot(0), PACKED, *others, *sizes), t.items_at_once, texts.scratch,
    )  # fmt: skip
    strides = (Integer(stride) for stride in form.w_strides)
    pack = Kernel(
        f"{texts.name}filter", texts.dtypes, texts.pack, max(texts.pieces, 1), (slot(1), PACKED, *strides)
    )  # fmt: skip
    draft = assembled(t.target, texts.tag, [run], [pack], packed=texts.packed, in_place=texts.in_place)
    draft = replace(draft, prepare=(Memset(PACKED, NOTE_BYTES), *draft.prepare))
    if guarded:
        reference, launch = guarded_reference(problem, t.target, PACKED)
        run_steps = (*draft.run, replace(launch, artifact=2))
        draft = replace(draft, sources=(*draft.sources, reference), run=run_steps)
    return draft

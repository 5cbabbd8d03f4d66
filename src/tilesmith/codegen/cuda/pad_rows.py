"""A kernel that copies one or two matrices whose rows begin anywhere to rows that begin at multiples of 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilesmith.codegen.cuda.unit import template
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Integer, Launch, Parameter, Pointer, Source
from tilesmith.targets.target import CudaTarget

_THREADS, _EACH = 256, 4
MOST_BYTES = 16 * (2**32 - 1 - _THREADS * _EACH)  # of a copy: its kernel counts units of 16 bytes in 32 bits
_NAMES = ("step", "layer", "end", "chunks", "rows", "all", "blocks")


@dataclass(frozen=True)
class Rows:
    """``layers`` times ``rows`` rows of ``row_bytes``, which begin ``step`` (``layer``) bytes apart at ``read``.

    They are written to ``write`` without gaps but those up to the next multiple of ``unit`` bytes, itself one of 16.
    """

    read: Pointer
    write: Pointer
    layers: int
    rows: int
    row_bytes: int
    step: int
    layer: int
    unit: int = 16

    @property
    def pitch(self) -> int:
        """Bytes from row to row of the copy."""
        return -(-self.row_bytes // self.unit) * self.unit

    @property
    def values(self) -> tuple[int, ...]:
        """The kernel's arguments, by ``_NAMES``."""
        chunks = self.pitch // 16
        count = self.layers * self.rows * chunks
        end = (self.layers - 1) * self.layer + (self.rows - 1) * self.step + self.row_bytes
        return (self.step, self.layer, end, chunks, self.rows, count, -(-count // (_THREADS * _EACH)))


def pad_rows(first: Rows, second: Rows | None, target: CudaTarget) -> tuple[Source, Launch]:
    """A launch that copies ``first``, and ``second`` if there is one. Pointers are multiples of 16 bytes.

    ``Launch.artifact`` is 0: the caller renumbers. ``ValueError`` if a matrix is too large for one launch.
    """
    names: list[str] = []
    parameters: list[Parameter] = []
    grid = 0
    for i, rows in enumerate((first, second or first)):
        values = rows.values
        if max(values[3:]) >= 2**32 - _THREADS * _EACH:
            raise ValueError(f"a copy of {values[5]} times 16 bytes is too large for one launch")
        names += [f"const void *from_{i}", f"void *to_{i}", *(f"long long {name}_{i}" for name in _NAMES)]
        parameters += [rows.read, rows.write, *map(Integer, values)]
        grid += values[-1] if i == 0 or second else 0
    text = template(Path(__file__).parent, "pad_rows").replace("@PARAMETERS@", ", ".join(names))
    made = make_source("cuda", "padrows", "b8", "b16", target.arch, "", text)
    return made, Launch(
        0, made.symbol, (grid, 1, 1), tuple(parameters), (_THREADS, 1, 1), programmatic=target.has_cluster
    )

"""The kernels that run the layers of an optimized model, and why: a frozen record that prints as a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerReport:
    """One layer: its name in the model, its class, what runs it (``"tilesmith"`` or ``"PyTorch"``), and why."""

    name: str
    kind: str
    runs: str
    why: str


@dataclass(frozen=True)
class Report:
    """``layers``: one record for each layer that could be replaced. ``graphs``: how each part of the model was fused.

    ``str(report)`` is a table.
    """

    layers: tuple[LayerReport, ...]
    graphs: tuple[tuple[str, str], ...]

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of the layers that Tilesmith runs."""
        return tuple(layer.name for layer in self.layers if layer.runs == "tilesmith")

    def __str__(self) -> str:
        rows = [("layer", "class", "runs", "why")]
        rows += [(each.name or "(the model)", each.kind, each.runs, each.why) for each in self.layers]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *(f"{name or '(the model)'}: {text}" for name, text in self.graphs)])

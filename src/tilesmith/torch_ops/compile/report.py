"""Reports how the backend treated each convolution and product of the graphs that it compiled."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

LIMIT = 64  # graphs that are remembered


@dataclass(frozen=True)
class Line:
    """One convolution, product, or gradient of a graph.

    Args:
        name: The graph's name of the operation.
        problem: Key of the problem with what was fused; empty where no signature describes it.
        ours: True if a kernel of Tilesmith runs it.
        reason: Why.
        solver: Kernel family of Tilesmith that would run it; empty where none was looked for.
        time_us: Measured or predicted time of that kernel, in microseconds.
        fused: What runs inside it: ``"batch norm"``, ``"bias"``, ``"residual"`` and the activation's name; and
            ``"concatenation"``, if it writes the result into its part of one.
    """

    name: str
    problem: str
    ours: bool
    reason: str
    solver: str = ""
    time_us: float | None = None
    fused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The lines of one graph, in the graph's order; ``str`` of it is a table.

    Args:
        graph: Number of the graph, in the order in which this process compiled them.
        lines: One for each convolution, product or gradient.
        remembered: True if an earlier process compiled the graph.
    """

    graph: int
    lines: tuple[Line, ...]
    remembered: bool = False

    def __str__(self) -> str:
        ours = sum(line.ours for line in self.lines)
        note = ", remembered" if self.remembered else ""
        head = f"graph {self.graph}: {ours} of {len(self.lines)} convolutions and products by Tilesmith{note}"
        rows = [
            f"  {line.name}: {line.solver if line.ours else 'PyTorch'}"
            + (f", {line.time_us:.1f} us" if line.time_us is not None and line.ours else "")
            + (f", with {' + '.join(line.fused)}" if line.fused and line.ours else "")
            + f" ({line.reason})"
            for line in self.lines
        ]
        return "\n".join([head, *rows])

    @property
    def counts(self) -> Counter[str]:
        """How many lines each solver runs; ``"PyTorch"`` for those that were left."""
        return Counter(line.solver if line.ours else "PyTorch" for line in self.lines)


_lock = threading.Lock()
_reports: list[Report] = []
_made = 0


def add_report(lines: tuple[Line, ...], remembered: bool = False) -> Report:
    """Remember what was done with one graph."""
    global _made
    with _lock:
        _made += 1
        report = Report(_made, lines, remembered)
        _reports.append(report)
        del _reports[:-LIMIT]
    return report


def reports() -> tuple[Report, ...]:
    """The reports of this process's graphs, oldest first; the last 64 are kept.

    Returns:
        One ``Report`` for each compiled graph that has a convolution or a product. A training step is one graph,
        forward and backward pass together.
    """
    with _lock:
        return tuple(_reports)


def last_report() -> Report | None:
    """Reports how the backend treated the graph that it compiled last.

    Returns:
        The report, or None if no graph with a convolution or a product was compiled. ``print(last_report())`` prints a
        table.
    """
    with _lock:
        return _reports[-1] if _reports else None

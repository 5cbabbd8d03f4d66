"""All that is known of products, side by side: text, CSV, JSON, and a plot."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilesmith.errors import ArgumentError
from tilesmith.lab.results import Result
from tilesmith.lab.words import form_of, said, type_of
from tilesmith.problems.work import flops
from tilesmith.ready.text_table import fitted_table, wrapped

OURS = "tilesmith"


def rivals_in(results: Sequence[Result]) -> list[str]:
    """The rivals that have a time, in the order of their first."""
    return list(dict.fromkeys(name for result in results for name in result.rivals))


def line(result: Result) -> str:
    """One result in a line."""
    theirs = "; ".join(
        f"{name} {_tflops(result, them.time_us):.3g} ({them.time_us / result.time_us:.2f}x)"
        for name, them in result.rivals.items()
    )
    warned = " (disturbed)" if result.disturbed else ""
    missing = "".join(f"; {name}: {reason}" for name, reason in result.missing.items())
    return (
        f"{said(result.signature)}: {_tflops(result, result.time_us):.3g} TFLOP/s, {result.time_us:.4g} us"
        f"{warned}{', ' + theirs if theirs else ''}{missing}; {result.solver} {result.config}"
    )


def text_table(results: Sequence[Result], width: int = 100) -> str:
    """TFLOP/s of ours and of each rival, the ratio of each, and the geometric means of the ratios by form and type."""
    names = rivals_in(results)
    head = ["problem", "us", OURS, *names, *(f"over {name}" for name in names), "roofline", "tuned in s", "kernel"]
    rows: list[list[object]] = []
    for result in results:
        theirs = [_tflops_of(result, name) for name in names]
        over = [_ratio(result, name) for name in names]
        star = "*" if result.disturbed else ""
        rows.append(
            [said(result.signature) + star, result.time_us, _tflops(result, result.time_us), *theirs, *over,
             result.roofline, result.seconds, f"{result.solver} {result.config}"]
        )  # fmt: skip
    lines = [fitted_table(head, rows, width, below=("problem", "kernel"))]
    for form, dtype in dict.fromkeys((form_of(r.signature), type_of(r.signature)) for r in results):
        of = [r for r in results if (form_of(r.signature), type_of(r.signature)) == (form, dtype)]
        for name in names:
            ratios = [ratio for each in of if (ratio := _ratio(each, name)) is not None]
            if ratios:
                singles = [ratio for result in of if (ratio := _single_ratio(result, name)) is not None]
                lines.append(
                    f"{form} {dtype}: {statistics.geometric_mean(ratios):.3f} times {name} "
                    f"(geometric mean of {len(ratios)}; least {min(ratios):.3f})"
                    + (
                        f"; single calls {statistics.geometric_mean(singles):.3f} (least {min(singles):.3f})"
                        if singles
                        else ""
                    )
                )
    if any(result.disturbed for result in results):
        lines.append("* other processes disturbed these times; run them again")
    told = [*lines[1:], *missing_lines(results)]
    return "\n".join([lines[0], *(part for line in told for part in wrapped(line, width, "    ", ""))])


def missing_lines(results: Sequence[Result]) -> list[str]:
    """For each rival that some products have no time of, the reason and their number."""
    reasons: dict[tuple[str, str], int] = {}
    for result in results:
        for name, reason in result.missing.items():
            reasons[name, reason] = reasons.get((name, reason), 0) + 1
    return [f"{name}: no time for {count} of {len(results)}: {reason}" for (name, reason), count in reasons.items()]


def csv_text(results: Sequence[Result]) -> str:
    """One row a product, with all times in microseconds."""
    names, out = rivals_in(results), io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["m", "n", "k", "batch", "form", "dtype", "target", "solver", "config", "time_us", "spread_us", "single_us",
         "tflops", "roofline", "trials", "seconds", "date", "disturbed",
         *(f"{name}_{what}" for name in names for what in ("us", "way", "ratio", "single_us", "single_ratio"))]
    )  # fmt: skip
    for result in results:
        problem = result.signature
        theirs: list[object] = []
        for name in names:
            them = result.rivals.get(name)
            theirs += (
                [""] * 5 if them is None
                else [them.time_us, them.way, _ratio(result, name), them.single_us, _single_ratio(result, name)]
            )  # fmt: skip
        writer.writerow(
            [problem.m, problem.n, problem.k, problem.batch, form_of(problem), type_of(problem), result.target,
             result.solver, result.config, result.time_us, result.spread_us, result.single_us,
             _tflops(result, result.time_us), result.roofline, result.trials, result.seconds, result.date,
             result.disturbed, *theirs]
        )  # fmt: skip
    return out.getvalue()


def json_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The results with the words that name them, and their rates."""
    return [
        {"words": said(result.signature), **asdict(result), "tflops": _tflops(result, result.time_us)}
        for result in results
    ]


def plot(results: Sequence[Result], path: Path) -> None:
    """Write TFLOP/s by size, a panel for each form and type: ours, each rival, and the roofline.

    The file's name says the format (``.svg``, ``.png``, ``.pdf``). ``ArgumentError`` for another format, or without
    matplotlib.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ArgumentError("a plot needs matplotlib; install it: pip install matplotlib") from None
    panels = list(dict.fromkeys((form_of(r.signature), type_of(r.signature)) for r in results))
    figure = Figure(figsize=(7.0, 3.4 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (form, dtype) in enumerate(panels):
        of = sorted(
            (r for r in results if (form_of(r.signature), type_of(r.signature)) == (form, dtype)),
            key=lambda r: flops(r.signature),
        )
        axes = figure.add_subplot(len(panels), 1, place + 1)
        at = range(len(of))
        bounds = [_tflops(r, r.time_us * r.roofline) for r in of]
        axes.plot(at, bounds, color="0.6", linestyle="--", label="roofline")
        axes.plot(at, [_tflops(r, r.time_us) for r in of], marker="o", label=OURS)
        for name in rivals_in(of):
            measured = [(place, rate) for place, r in enumerate(of) if (rate := _tflops_of(r, name)) is not None]
            axes.plot(*zip(*measured, strict=True), marker="x", label=name)
        axes.set_xticks(at, [said(r.signature).removesuffix(f" {form} {dtype}") for r in of], rotation=30, ha="right")
        axes.set_ylabel("TFLOP/s")
        axes.set_ylim(bottom=0)
        axes.set_title(f"{form} {dtype}, {of[0].target}")
        axes.legend()
    try:
        figure.savefig(path)
    except ValueError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _tflops(result: Result, time_us: float) -> float:
    return flops(result.signature) / time_us * 1e-6


def _tflops_of(result: Result, rival: str) -> float | None:
    them = result.rivals.get(rival)
    return None if them is None else _tflops(result, them.time_us)


def _single_ratio(result: Result, rival: str) -> float | None:
    """``_ratio`` of single calls, which are timed on GPUs alone."""
    them = result.rivals.get(rival)
    return them.single_us / result.single_us if them and them.single_us and result.single_us else None


def _ratio(result: Result, rival: str) -> float | None:
    them = result.rivals.get(rival)
    return None if them is None else them.time_us / result.time_us

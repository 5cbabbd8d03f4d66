"""Makes the measured constants of a GPU card from timings, and says how good they are on problems left out.

    python benchmarks/fit.py FILE... --target sm_90a:132 --card h200 [--folds 5] [--write [NAME]]
    python benchmarks/fit.py FILE... --target sm_90a:132 --check
    python benchmarks/fit.py FILE... --target sm_90a:132 --another-day FILE
    python benchmarks/fit.py FILE... --target sm_90a:132:h200 --parts NAME ... --judge FILE ...

FILE is a database, or a file of benchmarks/results/ with timings of configs. Constants are multiplied by steps, one
after the other, as long as the squared error of the logarithms of times falls; what no timing speaks of stays as the
nearest card has it. Two tables are printed, both for problems that the constants in question were not made from:
those of the nearest card, scaled (or, with --check, those that are committed), and those made from the other folds.
For each problem, the config among those timed with the least estimate, over the fastest: geometric mean and worst;
then the median of estimated over measured time. --write writes src/tilesmith/targets/fits/NAME.py (default: the card's
name) and adds it to ``fits()``: name the target with its card, so that memory and clock are that card's. --check makes
nothing and exits with 1 if the committed constants are worse than the limits below. --another-day makes constants from
that file alone, too, and compares what the two choose: for each problem of which both days have timings, the time of
the one's choice over the other's, both on the first day; it exits with 1 beyond the limit below. --parts makes the
constants of these kernels alone anew; --judge prints the tables for files from which nothing is made, too. The clock is
not fitted: cycles say the same.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import textwrap
from collections.abc import Collection, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import get_type_hints

from timings import Timing, timings

from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.fits.fit import Fit, Unit
from tilesmith.targets.fits.scaling import parts_of
from tilesmith.targets.names import parse_target

FITS = Path(__file__).parents[1] / "src" / "tilesmith" / "targets" / "fits"
STEPS = (1.3, 1.1, 1.03)
PRIOR = 0.01  # of the squared logarithm of a constant's change, beside the mean squared error: what says little stays
MOST_APART = 1.10  # --another-day: geometric mean
MOST_ABOVE, RATIOS = 1.15, (0.6, 1.6)  # --check: of the geometric mean, and of the median ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--target", default="sm_90a:132")
    parser.add_argument("--card", help="the card's name in targets, and of the file that is written")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="judge the constants that are committed")
    parser.add_argument(
        "--write", nargs="?", const="", metavar="NAME", help="write the constants made from all timings"
    )
    parser.add_argument("--parts", nargs="+", default=[], metavar="NAME", help="the parts of a fit that are made anew")
    parser.add_argument(
        "--like", metavar="NAME", help="the file of the card whose constants, scaled, the parts not named have"
    )
    parser.add_argument("--judge", type=Path, nargs="+", default=[], metavar="FILE", help="timings that only judge")
    parser.add_argument("--another-day", type=Path, metavar="FILE", help="timings of the same card from another day")
    args = parser.parse_args()
    target = parse_target(args.target)
    start = fit_of(target)
    rows = timings(args.files, target)
    if not rows:
        sys.exit("no timings of this target in these files")
    print(f"{len(rows)} timings of {len({row.problem for row in rows})} problems on {target.name}")
    held = judged((row, row.predict(start)) for row in rows)
    show(f"constants of {start.card}", held)
    if args.check:
        above, ratio = held["all"][1], held["all"][3]
        return 0 if above <= MOST_ABOVE and RATIOS[0] <= ratio <= RATIOS[1] else 1
    if args.another_day:
        return compared(start, rows, timings([args.another_day], target))
    left_out = []
    for others, rest in folds(rows, args.folds):
        fit = fitted(start, others, args.parts)
        left_out += [(row, row.predict(fit)) for row in rest]
    show(f"made from timings, judged on problems left out ({args.folds} folds)", judged(left_out))
    card = args.card or f"{target.arch}-{target.cores}"
    made = replace(fitted(start, rows, args.parts), card=card, arch=target.arch)
    for file in args.judge:
        others = timings([file], target)
        show(f"constants of {start.card} on {file.name}", judged((row, row.predict(start)) for row in others))
        show(f"those made from timings on {file.name}", judged((row, row.predict(made)) for row in others))
    if args.write is not None:
        module = args.write or card.replace("-", "_")
        source = ", ".join(file.name for file in args.files)
        (FITS / f"{module}.py").write_text(text_of(made, source, args.parts if args.like else (), args.like or ""))
        choose = FITS / "choose.py"
        choose.write_text(with_card(choose.read_text(), module, constant_of(made)))
        print(f"wrote {FITS / module}.py, and its name in {choose}")
    else:
        show_changes(start, made)
    return 0


def compared(start: Fit, first: list[Timing], second: list[Timing]) -> int:
    """Print how much the choices of two fits differ, each made from the problems that both days have."""
    both = {row.problem for row in first} & {row.problem for row in second}
    first, second = ([row for row in day if row.problem in both] for day in (first, second))
    fits = [fitted(start, day) for day in (first, second)]
    apart = []
    for problem in sorted(both):
        own = [row for row in first if row.problem == problem]
        times = [min(own, key=lambda row: row.predict(fit)).seconds for fit in fits]
        apart.append(max(times) / min(times))
    mean, same = statistics.geometric_mean(apart), sum(ratio == 1 for ratio in apart)
    print(f"{len(both)} problems on both days, {len(first)} and {len(second)} timings: {same} choices are the same, "
          f"their times are {mean:.3f} apart (geometric mean), at most {max(apart):.2f}")  # fmt: skip
    return 0 if mean <= MOST_APART else 1


def folds(rows: list[Timing], count: int) -> Iterable[tuple[list[Timing], list[Timing]]]:
    """The timings but for those of a share of the problems, and those."""
    problems = sorted({row.problem for row in rows})
    random.Random(0).shuffle(problems)
    for number in range(count):
        out = set(problems[number::count])
        yield [row for row in rows if row.problem not in out], [row for row in rows if row.problem in out]


def fitted(start: Fit, rows: list[Timing], parts: Collection[str] = ()) -> Fit:
    """``start`` with the constants of each part (of ``parts``) that some of ``rows`` speak of changed to suit them."""
    fit = start
    for part in parts_of(start):
        own = [row for row in rows if row.part == part.name]
        if own and (not parts or part.name in parts):
            fit = replace(fit, **{part.name: _part(fit, part.name, own)})
    return fit


def _part(fit: Fit, name: str, rows: list[Timing]):
    first = best = getattr(fit, name)
    weight = 1 / len(rows)
    # A kernel that takes as long as its launch does says little of the rest.
    logs = [math.log(row.seconds) for row in rows]

    def loss(part) -> float:
        whole = replace(fit, **{name: part})
        try:
            errors = (math.log(row.predict(whole)) - log for row, log in zip(rows, logs, strict=True))
            change = sum(math.log(a / b) ** 2 for a, b in zip(_numbers(part), _numbers(first), strict=True) if b > 0)
            return weight * sum(error * error for error in errors) + PRIOR * change / len(rows) ** 0.5
        except (ValueError, ZeroDivisionError, OverflowError):
            return math.inf

    least = loss(best)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for place, number in enumerate(_numbers(best)):
                for factor in (step, 1 / step):
                    if _is_beyond(best, place, number * factor):
                        continue
                    changed = _with(best, place, number * factor)
                    now = loss(changed)
                    if now < least * 0.999:
                        best, least, moved = changed, now, True
                        break
    return best


def _is_beyond(part, place: int, number: float) -> bool:
    """Whether a share of the memory's bandwidth would be more than all of it."""
    names = [name for name in _fittable(part) for _ in _values(part, name)]
    return names[place] == "bandwidth" and number > 1


def _fittable(part) -> list[str]:
    return _fittable_of(type(part))


@cache
def _fittable_of(kind: type) -> list[str]:
    hints = get_type_hints(kind, include_extras=True)
    fixed = {field.name for field in fields(kind) if hints[field.name].__metadata__[0] is Unit.CLUSTERS}
    return [field.name for field in fields(kind) if field.name not in {*fixed, "clock"}]


def _values(part, name: str) -> tuple[float, ...]:
    value = getattr(part, name)
    return value if isinstance(value, tuple) else (value,)


def _numbers(part) -> list[float]:
    return [number for name in _fittable(part) for number in _values(part, name)]


def _with(part, place: int, number: float):
    for name in _fittable(part):
        value = getattr(part, name)
        size = len(value) if isinstance(value, tuple) else 1
        if place < size:
            new = (*value[:place], number, *value[place + 1 :]) if isinstance(value, tuple) else number
            return replace(part, **{name: new})
        place -= size
    raise IndexError(place)


Table = dict[str, tuple[int, float, float, float]]


def judged(said: Iterable[tuple[Timing, float]]) -> Table:
    """By part and for all: problems, chosen over fastest (geometric mean, worst), estimated over measured."""
    rows = list(said)
    kinds = ["all", *sorted({row.part for row, _ in rows if row.part})]
    table = {}
    for kind in kinds:
        own = [(row, seconds) for row, seconds in rows if kind in ("all", row.part)]
        by_problem: dict[str, list[tuple[float, float]]] = {}
        for row, seconds in own:
            by_problem.setdefault(row.problem, []).append((seconds, row.seconds))
        above = [min(found)[1] / min(t for _, t in found) for found in by_problem.values() if len(found) > 1] or [1.0]
        ratio = statistics.median(seconds / row.seconds for row, seconds in own)
        table[kind] = (len(by_problem), statistics.geometric_mean(above), max(above), ratio)
    return table


def show(title: str, table: Table) -> None:
    print(f"\n{title}\n{'part':12} problems  chosen/fastest   worst  estimated/measured")
    for kind, (count, above, worst, ratio) in table.items():
        print(f"{kind:12} {count:8} {above:15.3f} {worst:7.2f} {ratio:19.2f}")


def show_changes(start: Fit, made: Fit) -> None:
    print("\nconstants that change, from all timings")
    for part in parts_of(made):
        before, after = getattr(start, part.name), getattr(made, part.name)
        for name in _fittable(before):
            if getattr(before, name) != getattr(after, name):
                print(f"{part.name}.{name}: {getattr(before, name)} -> {_rounded(getattr(after, name))}")


def constant_of(fit: Fit) -> str:
    return fit.card.upper().replace("-", "_")


def with_card(text: str, module: str, constant: str) -> str:
    """``choose.py`` with another card behind those that ``fits()`` has."""
    begin = text.index("def fits()")
    end = text.index("\n\n\n", begin)
    head, _, tail = text[begin:end].partition("\n\n    return (")
    line = f"    from tilesmith.targets.fits.{module} import {constant}"
    if line in head:
        return text
    *above, last = head.split("\n    from ")
    imports = sorted([*(f"    from {each}" for each in [*above[1:], last]), line])
    names = [*(name.strip() for name in tail.strip(")").split(",") if name.strip()), constant]
    body = "\n".join([above[0], *imports]) + f"\n\n    return ({', '.join(names)})"
    return text[:begin] + body + text[end:]


def text_of(fit: Fit, source: str, parts: Collection[str] = (), like: str = "") -> str:
    """The file of a card: constants to four digits. Those beside ``parts`` are scaled from the file ``like``."""
    own = [field for field in fields(fit) if not like or field.name in parts]
    types = [type(getattr(fit, part.name)).__name__ for part in own if is_dataclass(getattr(fit, part.name))]
    base = like.upper()
    rest = f": {', '.join(parts)}; the other parts are those of {like}, scaled" if like else ""
    told = textwrap.wrap(f"By `benchmarks/fit.py` from {source}{rest}.", 116)
    names = sorted({*types, *([] if like else ["Fit"])})
    imports = ["from tilesmith.targets.fits.fit import (", *(f"    {name}," for name in names), ")"]
    lines = [f'"""Constants of the card {fit.card}.', "", *told, '"""', "", "from __future__ import annotations", ""]
    if like:
        lines += ["from dataclasses import replace", "", *imports, f"from tilesmith.targets.fits.{like} import {base}",
                  "from tilesmith.targets.fits.scaling import scaled", "", f"{constant_of(fit)} = replace(",
                  f"    scaled({base}, {fit.cores}, {fit.clock_hz!r}, {fit.bytes_per_s!r}),",
                  f'    card="{fit.card}",']  # fmt: skip
    else:
        lines += [*imports, "", f"{constant_of(fit)} = Fit("]
    for field in own:
        value = getattr(fit, field.name)
        if is_dataclass(value):
            lines.append(f"    {field.name}={type(value).__name__}(")
            lines += [f"        {each.name}={_rounded(getattr(value, each.name))!r}," for each in fields(value)]
            lines.append("    ),")
        else:
            text = f'"{value}"' if isinstance(value, str) else repr(value)
            lines.append(f"    {field.name}={text},")
    return "\n".join([*lines, ")", ""])


def _rounded(value):
    if isinstance(value, tuple):
        return tuple(_rounded(one) for one in value)
    return value if isinstance(value, int) else float(f"{value:.4g}")


if __name__ == "__main__":
    sys.exit(main())

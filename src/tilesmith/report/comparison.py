"""The problems that became faster or slower between two inputs: two machines, drivers or versions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilesmith.report.payload import Payload, page_places
from tilesmith.report.records import DISTURBED, FAILED, Finding, Findings
from tilesmith.report.words import Figure, count_of, geomean, name_of

FASTER, SLOWER, SAME = "faster", "slower", "same"
BROKEN, MENDED = "broken", "mended"  # had a kernel and has none; had none and has one
ONLY_BEFORE, ONLY_AFTER = "only before", "only after"
WORSE = (SLOWER, BROKEN)
_WITHOUT_SPREAD = 0.05  # of the time, where an input does not say its spread


@dataclass(frozen=True)
class Change:
    """One problem in both inputs, or in one of them.

    ``change`` is the time after over the time before; None unless both are known. ``limit_us`` is the difference from
    which it counts: both spreads together, and no less than the share of the time before that was asked for.
    """

    before: Finding | None
    after: Finding | None
    verdict: str
    change: float | None = None
    limit_us: float | None = None

    @property
    def known(self) -> Finding:
        """The later of the two that there is."""
        found = self.after or self.before
        assert found is not None
        return found


@dataclass(frozen=True)
class Comparison:
    """All changes, those that are worse first."""

    changes: tuple[Change, ...]

    @property
    def counts(self) -> Counter[str]:
        return Counter(change.verdict for change in self.changes)

    @property
    def compared(self) -> int:
        """Problems with an undisturbed time, or a failure, in both."""
        return sum(self.counts[verdict] for verdict in (FASTER, SLOWER, SAME, BROKEN, MENDED))

    @property
    def is_worse(self) -> bool:
        return any(self.counts[verdict] for verdict in WORSE)


def compare(before: Findings, after: Findings, least: float) -> Comparison:
    """Compare problem by problem: on the same target, or where the inputs share no target, across targets.

    ``least`` is the share of the time that a difference must exceed beside the spreads, such as 0.02.
    """
    changes = [_judged(one, other, least) for one, other in _pairs(before.results, after.results)]
    order = (BROKEN, SLOWER, FASTER, MENDED, SAME, DISTURBED, ONLY_BEFORE, ONLY_AFTER)
    changes.sort(key=lambda change: (order.index(change.verdict), -abs((change.change or 1.0) - 1.0), change.known.key))
    return Comparison(tuple(changes))


def _pairs(before: Sequence[Finding], after: Sequence[Finding]) -> Iterator[tuple[Finding | None, Finding | None]]:
    shared = {each.target for each in before} & {each.target for each in after}
    one, other = _keyed(before, bool(shared)), _keyed(after, bool(shared))
    for key in sorted({*one, *other}):
        yield one.get(key), other.get(key)


def _keyed(findings: Sequence[Finding], by_target: bool) -> dict[tuple[str, str], Finding]:
    """By problem and target; or by problem and the place of its target among those of the problem."""
    found: dict[tuple[str, str], Finding] = {}
    seen: dict[str, int] = defaultdict(int)
    for each in findings:
        mark = each.target if by_target else str(seen[each.problem])
        seen[each.problem] += 1
        found[(each.problem, mark)] = each
    return found


def _judged(before: Finding | None, after: Finding | None, least: float) -> Change:
    if before is None or after is None:
        return Change(before, after, ONLY_AFTER if before is None else ONLY_BEFORE)
    if before.time_us is None or after.time_us is None:
        broken, mended = after.status == FAILED and before.time_us, before.status == FAILED and after.time_us
        return Change(before, after, BROKEN if broken else MENDED if mended else SAME)
    change = after.time_us / before.time_us
    limit = max(_spread(before) + _spread(after), least * before.time_us)
    if DISTURBED in (before.status, after.status):
        return Change(before, after, DISTURBED, change, limit)
    difference = after.time_us - before.time_us
    verdict = SAME if abs(difference) <= limit else SLOWER if difference > 0 else FASTER
    return Change(before, after, verdict, change, limit)


def _spread(finding: Finding) -> float:
    return _WITHOUT_SPREAD * (finding.time_us or 0.0) if finding.spread_us is None else finding.spread_us


def sentences(found: Comparison, before: str, after: str) -> list[str]:
    """The change in words."""
    counts = found.counts
    timed = [change.change for change in found.changes if change.change and change.verdict != DISTURBED]
    methods = {
        (change.before.method, change.after.method) for change in found.changes
        if change.before and change.after and change.before.method and change.after.method
    }  # fmt: skip
    text = [f"Before is {before}; after is {after}. {count_of(found.compared, 'problem')} can be compared."]
    if timed:
        mean = geomean(timed)
        text.append(
            f"Beyond the spread {count_of(counts[FASTER], 'problem')} became faster and {counts[SLOWER]} slower; "
            f"{counts[SAME]} stayed the same. Over all of them a call takes {mean:.3f} times as long (geometric mean)."
        )
    text += [
        f"The methods of timing differ ({one}; then {other}): that difference is part of the changes."
        for one, other in sorted(methods) if one != other
    ]  # fmt: skip
    for verdict, told in ((SLOWER, "The largest loss is"), (FASTER, "The largest gain is")):
        chosen = [change for change in found.changes if change.verdict == verdict]
        if chosen:
            first = max(chosen, key=lambda change: abs((change.change or 1.0) - 1.0))
            text.append(f"{told} {name_of(first.known)}: {first.change:.2f} times the time before.")
    if counts[BROKEN]:
        names = [name_of(change.known) for change in found.changes if change.verdict == BROKEN]
        have = "has" if counts[BROKEN] == 1 else "have"
        text.append(
            f"{count_of(counts[BROKEN], 'problem')} had a kernel before and {have} none now, such as {names[0]}."
        )
    if counts[DISTURBED]:
        text.append(f"{count_of(counts[DISTURBED], 'problem')} were left out: other processes disturbed the times.")
    sides = ((ONLY_BEFORE, "before"), (ONLY_AFTER, "after"))
    missing = [f"{counts[verdict]} {where}" for verdict, where in sides if counts[verdict]]
    if missing:
        text.append(f"Some problems are known on one side alone: {' and '.join(missing)}.")
    return text


def comparison_data(found: Comparison, before: Findings, after: Findings, names: tuple[str, str]) -> Payload:
    """The data of the page of a comparison."""
    counts = found.counts
    timed = [change.change for change in found.changes if change.change and change.verdict != DISTURBED]
    shown = [Figure(str(found.compared), "problems compared")]
    if timed:
        shown.append(Figure(f"{1 / geomean(timed):.3f}x", "as fast as before", "geometric mean"))
    shown += [Figure(str(counts[FASTER]), "faster"), Figure(str(counts[SLOWER] + counts[BROKEN]), "slower or broken")]
    return {
        "kind": "compare",
        "words": sentences(found, *names),
        "figures": [vars(figure) for figure in shown],
        "changes": [_row(change) for change in found.changes],
        **page_places([before, after]),
    }


def _row(change: Change) -> Payload:
    sides = (change.before, change.after)
    return {
        "name": name_of(change.known), "key": change.known.problem, "verdict": change.verdict, "change": change.change,
        "before": change.before.time_us if change.before else None,
        "after": change.after.time_us if change.after else None,
        "limit": change.limit_us, "kernels": [each.solver if each else "" for each in sides],
        "targets": [each.target if each else "-" for each in sides],
        "reason": next((each.reason for each in reversed(sides) if each is not None and each.reason), ""),
    }  # fmt: skip


def as_row(change: Change) -> Payload:
    """One problem as a line of JSON."""
    return {
        "problem": change.known.problem, "name": name_of(change.known), "verdict": change.verdict,
        "before_target": change.before.target if change.before else None,
        "after_target": change.after.target if change.after else None,
        "before_us": change.before.time_us if change.before else None,
        "after_us": change.after.time_us if change.after else None, "change": change.change,
        "limit_us": change.limit_us, "before_solver": change.before.solver if change.before else None,
        "after_solver": change.after.solver if change.after else None,
    }  # fmt: skip

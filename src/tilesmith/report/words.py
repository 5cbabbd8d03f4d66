"""The summary of a report: plain sentences, and the few figures that stand above them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from tilesmith.report.names import short_name, signature_of
from tilesmith.report.records import DISTURBED, FAILED, Finding, Findings


@dataclass(frozen=True)
class Figure:
    """A number, what it is, and one remark about it."""

    value: str
    label: str
    note: str = ""


def name_of(finding: Finding) -> str:
    """The problem in a few words; its key where this version cannot read it."""
    signature = signature_of(finding.problem)
    return finding.problem if signature is None else short_name(signature)


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def roof_share(finding: Finding) -> float | None:
    """The least time that the machine allows over the time taken."""
    return finding.roof_us / finding.time_us if finding.roof_us and finding.time_us else None


def standing(finding: Finding) -> str:
    """``faster``, ``slower`` or ``level`` with the fastest other library; level is within both spreads."""
    rival = finding.rival
    if finding.ratio is None or rival is None or finding.time_us is None:
        return ""
    spread = (finding.spread_us or 0.0) + (rival.spread_us or 0.0)
    if abs(rival.time_us - finding.time_us) <= spread:
        return "level"
    return "faster" if finding.ratio > 1 else "slower"


def figures(found: Findings) -> list[Figure]:
    """Those that stand above the summary."""
    results = found.results
    ratios = [each.ratio for each in results if each.ratio]
    gains = [each.gain for each in results if each.gain]
    shares = [share for each in results if (share := roof_share(each))]
    tried = sum(len(each.trials) for each in results)
    shown = [Figure(f"{len(results):,}", "problems", f"{tried:,} configs tried" if tried else "")]
    if ratios:
        counts = Counter(map(standing, results))
        note = f"{counts['faster']} faster, {counts['level']} level, {counts['slower']} slower"
        shown.append(Figure(f"{geomean(ratios):.2f}x", f"as fast as {libraries(results)}", note))
    if gains:
        shown.append(Figure(f"{geomean(gains):.2f}x", "as fast as untuned", f"{len(gains)} problems, geometric mean"))
    if shares:
        note = f"{len(shares)} problems, geometric mean"
        shown.append(Figure(f"{100 * geomean(shares):.0f} %", "of the roofline", note))
    broken = sum(each.status == FAILED for each in results)
    shown.append(Figure(f"{broken}", "problems without a kernel" if broken != 1 else "problem without a kernel"))
    return shown


def libraries(results: Sequence[Finding]) -> str:
    """The names of the other libraries."""
    names = sorted({each.name for finding in results for each in finding.rivals})
    spelled = {"cudnn": "cuDNN", "cublas": "cuBLAS", "onednn": "oneDNN", "cutlass": "CUTLASS", "tvm": "TVM"}
    return _listed([spelled.get(name, name) for name in names], "or")


def sentences(found: Findings) -> list[str]:
    """The summary: what was tuned, how much faster it is, where time is still lost, what failed."""
    results = found.results
    return [text for text in (_tuned(found), _against(results), _gained(results), _lost(results), _far(results),
                              _failed(results), _disturbed(results)) if text]  # fmt: skip


def _tuned(found: Findings) -> str:
    results, targets = found.results, sorted({each.target for each in found.results})
    searched = [each.search for each in results if each.search is not None and each.search.strategy != "defaults"]
    trials = sum(len(each.trials) for each in results)
    failed = sum(not record.ok for each in results for record in each.trials)
    text = f"This report covers {count_of(len(results), 'problem')} on {_listed(targets, 'and')}."
    if trials:
        text += f" {count_of(trials, 'config')} were compiled, checked against float64 and timed"
        text += f"; {failed:,} of them failed." if failed else ", and none failed."
    if searched:
        seconds = sum(search.seconds for search in searched)
        text += f" Searches of {count_of(len(searched), 'problem')} took {_duration(seconds)} in all."
    return text


def _against(results: Sequence[Finding]) -> str:
    beside = [each for each in results if each.ratio]
    if not beside:
        return (
            "No other library was measured on these problems: `tilesmith bench FILE --json RESULTS` does, and a report "
            "reads its file beside the database."
        )
    mean, counts = geomean([each.ratio or 1.0 for each in beside]), Counter(map(standing, beside))
    best = max(beside, key=lambda each: each.ratio or 0.0)
    several = len({each.name for finding in beside for each in finding.rivals}) > 1
    return (
        f"Beside {'the best of ' * several}{libraries(results)}, ours is {mean:.2f} times as fast on "
        f"{count_of(len(beside), 'problem')} (geometric mean): faster on {counts['faster']}, level within the spread "
        f"on {counts['level']}, slower on {counts['slower']}. The largest gain is {name_of(best)}, {best.ratio:.2f} "
        "times as fast."
    )


def _gained(results: Sequence[Finding]) -> str:
    known = [each for each in results if each.gain]
    if not known:
        return ""
    best = max(known, key=lambda each: each.gain or 0.0)
    mean = geomean([each.gain or 1.0 for each in known])
    return (
        f"Tuning made {count_of(len(known), 'problem')} {mean:.2f} times as fast "
        f"as the choice without a measurement (geometric mean); most of all {name_of(best)}, {best.gain:.2f} times."
    )


def _lost(results: Sequence[Finding]) -> str:
    losses = [
        (each.time_us - each.rival.time_us, each) for each in results
        if standing(each) == "slower" and each.rival is not None and each.time_us
    ]  # fmt: skip
    if not losses:
        return "No problem is slower than the other library." if any(each.ratio for each in results) else ""
    total = sum(loss for loss, _ in losses)
    worst, where = max(losses, key=lambda item: item[0])
    return (
        f"Time is still lost to the other library on {count_of(len(losses), 'problem')}: {_time(total)} if each is "
        f"called once, {_time(worst)} of it in {name_of(where)} ({where.ratio:.2f} times as fast)."
    )


def _far(results: Sequence[Finding]) -> str:
    known = [(share, each) for each in results if (share := roof_share(each)) and each.time_us and each.roof_us]
    if not known:
        return ""
    room = sorted(known, key=lambda item: (item[1].roof_us or 0.0) - (item[1].time_us or 0.0))[:3]
    told = [
        f"{name_of(each)} ({100 * share:.0f} % of its roofline, {_time(each.time_us or 0.0)})" for share, each in room
    ]
    return f"The machine itself leaves most room in {_listed(told, 'and')}."


def _failed(results: Sequence[Finding]) -> str:
    broken = [each for each in results if each.status == FAILED]
    reasons = Counter(record.reason for each in results for record in each.trials if not record.ok and record.reason)
    text = ""
    if broken:
        have = "has" if len(broken) == 1 else "have"
        text = f"{count_of(len(broken), 'problem')} {have} no kernel that works, such as {name_of(broken[0])}: "
        text += f"{_cut(broken[0].reason)}."
    if reasons:
        reason, count = reasons.most_common(1)[0]
        text += f" The most frequent failure of a config ({count:,} times): {_cut(reason)}."
    return text.strip()


def _disturbed(results: Sequence[Finding]) -> str:
    count = sum(each.status == DISTURBED for each in results)
    if not count:
        return ""
    were, are = ("was", "it is") if count == 1 else ("were", "they are")
    return f"{count_of(count, 'problem')} {were} disturbed by other processes: {are} left out of the means."


def count_of(number: int, noun: str) -> str:
    """Such as ``1 problem`` or ``1,200 problems``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def _time(us: float) -> str:
    return f"{us:.3g} us" if us < 1000 else f"{us / 1000:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{seconds:.1f} seconds" if seconds < 100 else str(timedelta(seconds=whole)) + " (h:mm:ss)"


def _cut(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= 160 else f"{line[:157]}..."

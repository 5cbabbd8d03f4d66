"""The words for the tuning of a list: the state in a line, a problem's result in a line, the table and its summary."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tilesmith.ready.console import WIDTH, clock, cut
from tilesmith.ready.text_table import table
from tilesmith.ready.watch import Current, Task, TunedRow, Watch, ratio
from tilesmith.tune.progress import FAILED, LATE, PASSED_OVER, PLAYOFF, SEARCH, SEARCHING, Progress

NAME = 22  # characters of a problem's name that a line has at least
FASTER = 1.02  # speed-up of a problem that counts as faster
UNTIMED = "-"


def state_line(watch: Watch, width: int = WIDTH) -> str:
    """The state of the whole: what is done now, what was found, and the time left; ``width`` characters at most."""
    left = time_left(watch)
    tail = f", {left}" if left else ""
    running = watch.now
    if len(running) == 1:
        return _fitted(_place(watch, running[0].task), running[0].task.name, _found(watch, running[0], tail), width)
    what = f"{len(running)} at work" if running else "between two problems"
    return cut(f"{counts(watch)}: {what}{gain_words(watch)}{tail}", width)


def end_line(watch: Watch, row: TunedRow, width: int = WIDTH) -> str:
    """How the last search of a problem ended."""
    end = row.end
    assert end is not None
    head = _place(watch, row.task)
    if not row.answered:
        return cut(f"{head}{row.task.name}: {end.outcome}", width)
    mark = " (disturbed)" if end.disturbed else ""
    passed = " (earlier)" if end.outcome == PASSED_OVER else ""
    times, library = _times(end.untuned_us, end.tuned_us), _beside(row)
    gain = f" ({row.speedup:.2f}x)" if row.speedup else ""
    return _fitted(
        head, row.task.name,
        [f"{times}{gain}{library}, {end.solver}{mark}{passed}", f"{times}{gain}{library}", f"{times}{gain}", times],
        width,
    )  # fmt: skip


def search_words(state: Progress | None) -> str:
    """The state of one search: configs tried and left, and the best beside the untuned choice."""
    if state is None:
        return "preparing"
    failed = f", {state.failed} failed" if state.failed else ""
    gain = ratio(state.untuned_us, state.best_us)
    best = "" if state.best_us is None else f", {_times(state.untuned_us, state.best_us)}"
    return f"{state.trials} tried{_left(state)}{failed}{best}{f' ({gain:.2f}x)' if gain else ''}"


def now_words(one: Current, row: TunedRow) -> str:
    """A line about a problem: the work on it now, the best time so far, and the library's time."""
    if one.began.doing != SEARCHING and one.state is None:
        words = one.began.doing
    else:
        words = search_words(one.state) + (f" by {one.state.best.split()[0]}" if one.state and one.state.best else "")
    over = ratio(row.library_us, None if one.state is None else one.state.best_us)
    return f"{words}{_beside(row)}{f' ({over:.2f}x)' if over else ''}"


def _left(state: Progress) -> str:
    """How many configs may follow: by the limit of trials, else roughly those for which there is time."""
    if state.left is not None:
        return f", {state.left} left"
    if state.budget_s is None or not state.new_trials or not state.seconds or state.phase != SEARCH:
        return ""
    more = state.new_trials / state.seconds * max(0.0, state.budget_s - state.seconds)
    return f", ~{float(f'{more:.1g}'):.0f} left"


def _found(watch: Watch, one: Current, tail: str) -> list[str]:
    """The same of the current problem, with the time left; the fullest text first."""
    if one.began.doing != SEARCHING:
        return [f"{one.began.doing}{tail}"]
    state = one.state
    if state is None:
        return [f"preparing{tail}", "preparing"]
    tried, left = f"{state.trials} tried", _left(state)
    failed = f", {state.failed} failed" if state.failed else ""
    best = "" if state.best_us is None else f", {_times(state.untuned_us, state.best_us)}"
    solver = f" by {state.best.split()[0]}" if state.best else ""
    library = _beside(watch.rows[one.task.key])
    phase = ", last races" if state.phase == PLAYOFF else ""
    return [
        f"{tried}{left}{failed}{best}{solver}{library}{phase}{tail}",
        f"{tried}{left}{failed}{best}{library}{tail}",
        f"{tried}{left}{best}{library}{tail}",
        f"{tried}{best}{library}{tail}",
        f"{tried}{best}{tail}",
        f"{tried}{tail}",
    ]


def _times(untuned_us: float | None, best_us: float | None) -> str:
    """``53.6 -> 41.2 us``; one time if both are the same."""
    if best_us is None:
        return "no time"
    before = "" if untuned_us is None or untuned_us == best_us else f"{short_us(untuned_us)} -> "
    return f"{before}{short_us(best_us)} us"


def short_us(us: float | None) -> str:
    """Three digits or more: ``1234``, ``53.6``, ``4.64``."""
    return UNTIMED if us is None else f"{us:.0f}" if us >= 100 else f"{us:.1f}" if us >= 10 else f"{us:.3g}"


def _beside(row: TunedRow) -> str:
    return f", {row.library} {short_us(row.library_us)}" if row.library_us else ""


def _fitted(head: str, name: str, tails: Sequence[str], width: int) -> str:
    """The fullest tail that leaves the name its place; the name is cut before that."""
    for tail in tails:
        room = width - len(head) - len(tail) - 2
        if room >= min(NAME, len(name)) or tail is tails[-1]:
            return cut(f"{head}{cut(name, max(0, room))}: {tail}", width)
    return cut(f"{head}{name}", width)


def _place(watch: Watch, task: Task) -> str:
    """The number of a problem in the list."""
    return f"[{list(watch.rows).index(task.key) + 1}/{len(watch.rows)}] "


def counts(watch: Watch) -> str:
    """``3 of 12 done, 1 failed``."""
    ended = watch.ended
    failed = sum(not row.answered for row in ended)
    return f"{len(ended)} of {len(watch.rows)} done" + (f", {failed} without an answer" if failed else "")


def gain_words(watch: Watch) -> str:
    """``, 1.27x so far``; empty before anything is known."""
    return f", {watch.gain:.2f}x so far" if watch.gain else ""


def time_left(watch: Watch) -> str:
    """``2:10 left``; empty where nothing is known of the time."""
    left = watch.left_s
    return "" if left is None else f"{clock(left)} left"


# --- when all is done -------------------------------------------------------------------------------------------------


def summary_table(rows: Sequence[TunedRow], width: int = WIDTH) -> str:
    """Untuned time, tuned time, the library's, and what won, for each problem; no line is longer than ``width``."""
    library = next((row.library for row in rows if row.library), "")
    weighted = any(row.task.calls > 1 for row in rows)
    headers = [*(["calls"] if weighted else []), "untuned", "tuned", *([library] if library else []), "gain", "won"]
    cells: list[list[object]] = []
    for row in rows:
        end = row.end
        untuned, tuned = (end.untuned_us, end.tuned_us) if end is not None and row.answered else (None, None)
        won = row.winner or (end.outcome if end is not None else "not begun")
        gain = f"{row.speedup:.2f}x" if row.speedup else UNTIMED
        weight, beside = [row.task.calls] if weighted else [], [row.library_us] if library else []
        cells.append([*weight, untuned, tuned, *beside, gain.rjust(5), won])
    names = [row.task.name for row in rows]
    common = _common_tail(names)
    lines = table(headers, cells).splitlines()
    digits = len(str(len(rows)))
    room = max(12, width - max(map(len, lines)) - digits - 4)
    shown = ["problem", *(cut(name[: len(name) - len(common)] if common else name, room) for name in names)]
    numbers = ["#".rjust(digits), *(str(number).rjust(digits) for number in range(1, len(rows) + 1))]
    wide = max(map(len, shown))
    head = f"microseconds of one call{f'; every problem:{common}' if common else ''}"
    body = [
        cut(f"{number}  {name.ljust(wide)}  {line}".rstrip(), width)
        for number, name, line in zip(numbers, shown, lines, strict=True)
    ]
    return "\n".join([cut(head, width), *body])


def _common_tail(names: Sequence[str]) -> str:
    """The words that all names end with, such as ``NHWC fp32``: they are told once."""
    if len(names) < 2:
        return ""
    tail: list[str] = []
    for words in zip(*(reversed(name.split(" ")[2:]) for name in names), strict=False):
        if len(set(words)) > 1:
            break
        tail.insert(0, words[0])
    return "".join(f" {word}" for word in tail)


def summary_words(watch: Watch, rows: Sequence[TunedRow]) -> list[str]:
    """The result in sentences, each a line of at most 80 characters."""
    answered = [row for row in rows if row.answered]
    problems = "1 problem" if len(rows) == 1 else f"{len(rows)} problems"
    which = problems if len(answered) == len(rows) else f"{len(answered)} of {problems}"
    lines = [f"{which} tuned in {clock(watch.spent_s)}"]
    speedups = [row.speedup or 0.0 for row in answered if row.in_means]
    if speedups:
        faster = sum(speedup > FASTER for speedup in speedups)
        lines[0] += f": {statistics.geometric_mean(speedups):.3f}x over untuned (geomean; {faster} by over 2 %)"
    if speedups and any(row.task.calls > 1 for row in rows):
        before, after = watch.sums_us
        lines.append(
            f"all calls together: {before / 1e3:.4g} ms untuned, {after / 1e3:.4g} ms tuned, {before / after:.3f}x"
        )
    library, beside = next((row.library for row in rows if row.library), ""), [r.over_library for r in answered]
    known = [over for over in beside if over]
    if known:
        lost = sum(over < 1 for over in known)
        text = f"{statistics.geometric_mean(known):.3f}x over {library} (geomean of {len(known)})"
        lines.append(f"{text}; {library} is faster on {lost or 'none'}")
    disturbed = sum(row.end is not None and row.end.disturbed > 0 for row in answered)
    earlier = sum(row.end is not None and row.end.outcome == PASSED_OVER for row in rows)
    outcomes = [row.end.outcome if row.end is not None else "" for row in rows if not row.answered]
    told = (
        (earlier, "tuned by an earlier run"), (disturbed, "disturbed by other processes: in no mean"),
        (outcomes.count(FAILED), "failed"), (outcomes.count(LATE), "without an answer in time"),
        (sum(outcome not in (FAILED, LATE) for outcome in outcomes), "not tuned"),
    )  # fmt: skip
    return lines + [f"{count} {what}" for count, what in told if count]

"""The benchmark method: medians, spread, ties, rotation, early stopping, what a disturbed sample counts."""

import random
import time

import pytest

from tilesmith.measure.timing import ONE_THREAD, SAMPLE_S, Timing, interleave, is_tie, quantile, summarize


def spin(seconds):
    def call():  # of this thread's own time, which other processes do not stretch
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    return call


def timing(median, spread=0.0):
    return Timing(median, spread, 9, "test")


def test_a_known_duration_is_measured():
    result = interleave({"a": spin(300e-6), "b": spin(900e-6)}, budget_s=2, rounds=9, threads=1)
    # Thread CPU time of a loop on wall time can only be shorter, when others had the core.
    assert result["a"].low_us < 330
    assert 1.5 < result["b"].median_us / result["a"].median_us < 4.5
    assert result["a"].method == ONE_THREAD
    assert result["a"].samples == 9


def test_wall_time_is_read_for_more_than_one_thread():
    # Sleeping costs no CPU time: only a wall clock sees it.
    result = interleave({"a": lambda: time.sleep(0.002)}, budget_s=1, rounds=5, threads=2)
    assert result["a"].median_us >= 2000
    assert interleave({"a": lambda: time.sleep(0.002)}, budget_s=1, rounds=3, threads=1)["a"].median_us < 1000


def test_fast_calls_are_repeated_until_a_sample_is_long_enough(monkeypatch):
    clock = Clock(monkeypatch, 1)
    result = interleave({"a": clock.call(1e-6, lambda turn: 1.0)}, budget_s=1, rounds=3, threads=1)
    assert clock.calls >= 3 * SAMPLE_S / 1e-6
    assert result["a"].median_us == pytest.approx(1)


def test_order_rotates_and_every_candidate_is_sampled_in_each_round():
    seen = []
    interleave({name: spin(2e-3) for name in "abc"}, budget_s=9, rounds=3, threads=1, before=seen.append)
    assert [seen[i : i + 3] for i in range(3, 12, 3)] == [list("abc"), list("bca"), list("cab")]


def test_candidates_of_one_pool_stay_together():
    seen = []
    owners = {"a": "ours", "b": "theirs", "c": "ours"}
    interleave({n: spin(2e-3) for n in "abc"}, budget_s=9, rounds=2, threads=2, owners=owners, before=seen.append)
    rounds = ["".join(owners[n][0] for n in seen[i : i + 3]) for i in range(3, 9, 3)]
    assert rounds == ["oot", "too"]


class Clock:
    """Clocks that calls set forward: by their own seconds, times what slows all of a round."""

    def __init__(self, monkeypatch, candidates):
        self.ns, self.calls, self.candidates = 0, 0, candidates
        monkeypatch.setattr("tilesmith.measure.timing.time.thread_time_ns", lambda: self.ns)
        monkeypatch.setattr("tilesmith.measure.timing.time.perf_counter_ns", lambda: self.ns)
        monkeypatch.setattr("tilesmith.measure.timing.time.perf_counter", lambda: self.ns * 1e-9)

    def call(self, seconds, slowed, own=lambda turn: 1.0):
        def run():
            turn = self.calls // self.candidates
            self.calls += 1
            self.ns += round(seconds * slowed(turn) * own(turn) * 1e9)

        return run


def raced(calls, rounds=31):
    return interleave(calls, budget_s=60, rounds=rounds, threads=1, estimates=dict.fromkeys(calls, 0.02))


def test_what_slows_a_whole_round_hides_no_difference(monkeypatch):
    slowed = lambda turn: 1.0 + 0.15 * (turn % 5)  # noqa: E731
    clock = Clock(monkeypatch, 3)
    result = raced({"a": clock.call(0.020, slowed), "b": clock.call(0.021, slowed), "c": clock.call(0.03, slowed)})
    assert result["a"].median_us == pytest.approx(20e3 * 1.3, rel=1e-6)  # at the usual level
    assert result["b"].median_us / result["a"].median_us == pytest.approx(1.05, rel=1e-6)
    assert not is_tie(result["a"], result["b"])
    alone = raced({"a": Clock(monkeypatch, 1).call(0.020, slowed)})["a"]
    assert alone.spread_us > 0.05 * alone.median_us > 20 * result["a"].spread_us


def test_scatter_of_their_own_stays_with_the_candidates(monkeypatch):
    # Two candidates, each up and down by 10 % on its own: the spread is about that of samples taken one by one.
    clock = Clock(monkeypatch, 2)
    noise = random.Random(3)
    values = [[noise.gauss(1.0, 0.1) for _ in range(200)] for _ in range(3)]
    calls = {name: clock.call(0.02, lambda turn: 1.0, values[i].__getitem__) for i, name in enumerate("ab")}
    result = raced(calls, 200)
    clock = Clock(monkeypatch, 1)
    alone = raced({"a": clock.call(0.02, lambda turn: 1.0, values[2].__getitem__)}, 200)["a"]
    for name in "ab":
        assert 0.75 < result[name].spread_us / alone.spread_us < 1.35
        assert result[name].median_us == pytest.approx(20e3, rel=0.03)


def test_clearly_slower_candidates_are_dropped_early():
    calls = {"fast": 0, "slow": 0}

    def counted(name, call):
        def run():
            calls[name] += 1
            call()

        return run

    slow, fast = counted("slow", spin(8e-3)), counted("fast", spin(2e-3))
    result = interleave({"slow": slow, "fast": fast}, budget_s=5, rounds=12, threads=1, drop_ratio=1.3)
    assert result["slow"].samples == 3
    assert result["fast"].samples == 12
    assert result["slow"].median_us > result["fast"].median_us


def test_the_budget_ends_the_rounds_but_three_are_always_taken(monkeypatch):
    clock = Clock(monkeypatch, 1)
    call = clock.call(5e-3, lambda turn: 1.0)
    assert interleave({"a": call}, budget_s=0.048, rounds=1000, threads=1, estimates={"a": 5e-3})["a"].samples == 10
    assert interleave({"a": call}, budget_s=0, rounds=9, threads=1, estimates={"a": 5e-3})["a"].samples == 3


def test_median_notch_and_quartile():
    result = summarize([i * 1e-6 for i in range(1, 10)], [], "m")
    assert result.median_us == pytest.approx(5)
    assert result.low_us == pytest.approx(3)
    assert result.spread_us == pytest.approx(1.57 * 4 / 3)
    assert quantile([1.0], 0.75) == 1.0
    assert quantile([1.0, 2.0], 0.5) == 1.5


def test_disturbed_samples_are_discarded_while_enough_are_left():
    clean = summarize([1e-6] * 6, [9e-6] * 4, "m")
    assert (clean.median_us, clean.samples, clean.discarded) == (pytest.approx(1), 6, 4)
    few = summarize([1e-6] * 4, [9e-6] * 6, "m")
    assert (few.median_us, few.samples, few.discarded) == (pytest.approx(9), 10, 0)
    assert (clean.disturbed, few.disturbed) == (0, 6)
    mostly = summarize([1e-6] * 5, [9e-6] * 16, "m")
    assert (mostly.median_us, mostly.samples, mostly.discarded) == (pytest.approx(1), 5, 16)


def test_a_thread_that_waits_for_a_core_disturbs_its_sample(monkeypatch):
    """Two candidates alike; a core is missing while the second runs, in every round but some of the later ones."""
    import tilesmith.measure.timing as module

    waited = turns = 0

    def lonely():
        nonlocal waited, turns
        turns += 1
        if turns % 4:
            waited += 10**9

    monkeypatch.setattr(module, "_lost", lambda: (0, waited))
    monkeypatch.setattr(module, "SHARE", 0.0)
    calls = {"a": lambda: None, "b": lonely}
    long = {"a": 1.0, "b": 1.0}  # so that a sample is one call
    quick = interleave(calls, budget_s=10.0, rounds=6, threads=2, estimates=long)
    assert (quick["a"].disturbed, quick["b"].disturbed) == (0, 5)
    turns = 0
    patient = interleave(calls, budget_s=10.0, rounds=12, threads=2, estimates=long, patient=True)
    assert (patient["a"].disturbed, patient["b"].disturbed) == (0, 0)
    assert (patient["b"].samples, patient["b"].discarded) == (5, 15)


def test_a_thread_that_never_got_a_core_is_missed_by_its_work(monkeypatch):
    """A pool that works on without one of its threads has less processor time in as long a sample."""
    import tilesmith.measure.timing as module

    used = turns = 0
    clock = Clock(monkeypatch, 1)

    def work():
        nonlocal used, turns
        turns += 1
        clock.ns += 1_000_000
        used += 1_000_000 * (1 if turns % 3 else 2)

    monkeypatch.setattr(module, "_lost", lambda: (0, 0))
    monkeypatch.setattr(module.time, "process_time_ns", lambda: used)
    found = interleave({"a": work}, budget_s=60.0, rounds=18, threads=2, estimates={"a": 1.0})["a"]
    assert (found.samples, found.discarded, found.disturbed) == (6, 12, 0)


def test_what_the_system_tells_of_waiting(monkeypatch):
    import tilesmith.measure.timing as module

    switches, waited = module._lost()
    assert switches >= 0
    assert waited >= 0
    monkeypatch.setattr(module, "_TASKS", "/nonexistent")
    assert module._lost()[1] == 0


def test_a_difference_within_the_spread_is_a_tie():
    timings = {"a": timing(10.4, 0.5), "b": timing(10.0, 0.2), "c": timing(9.0, 0.3)}
    assert is_tie(timings["a"], timings["b"])
    assert not is_tie(timings["b"], timings["c"])


def test_nothing_to_time():
    assert interleave({}, budget_s=1, rounds=3, threads=1) == {}

"""The times of a library on operands as they are given, beside its fastest time on copies that no time counts."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilesmith.compare.bench_records import OURS, bench_of, unraced
from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.machine import sheet_machine
from tilesmith.measure.timing import Timing
from tilesmith.problems.conv import ConvSignature
from tilesmith.targets.names import parse_target

H200 = parse_target("sm_90a:132:h200")
CONV = ConvSignature((1, 16, 16, 8), (8, 1, 1, 8), dtype="bf16", shared_layout="NHWC")


def timing(us):
    return Timing(us, 0.1, 7, "events")


def measured(given):
    timings = {OURS: timing(10.0), "cudnn padded": timing(15.0), "other mm": timing(12.0)}
    single = {OURS: timing(12.0), "cudnn padded": timing(18.0), "other mm": timing(13.0)}
    launch, machine = SimpleNamespace(signature=CONV, target=H200), sheet_machine(H200, "", "")
    missing = {"cudnn": "", "other": ""}
    return bench_of(launch, machine, Accuracy(True, 0.0, 1.0, ()), timings, missing, 0.0, "late", single, given)


def test_given_times_stand_beside_the_fastest_way():
    found = measured({
        "cudnn channels_last": (timing(40.0), timing(44.0)), "cudnn contiguous": (timing(50.0), timing(43.0)),
        "other mm": (timing(12.0), timing(13.0)),
    })  # fmt: skip
    cudnn, other = found.against["cudnn"], found.against["other"]
    assert (cudnn.time_us, cudnn.single_us, cudnn.mode) == (15.0, 18.0, "padded")
    assert (cudnn.given_us, cudnn.given_single_us) == (40.0, 43.0)
    assert (other.given_us, other.given_single_us) == (12.0, 13.0)
    assert found.ratio == pytest.approx({"cudnn": 1.5, "other": 1.2})  # of the fastest way


def test_no_given_time_where_all_ways_are_copies():
    found = measured({"other mm": (timing(12.0), timing(13.0))}).against
    assert (found["cudnn"].given_us, found["cudnn"].given_single_us) == (None, None)
    assert measured(None).against["other"].given_us is None


def test_a_given_time_that_was_disturbed_does_not_count():
    late = replace(timing(90.0), disturbed=3)
    found = measured({"cudnn channels_last": (timing(40.0), late), "other mm": (timing(12.0), timing(13.0))}).against
    assert (found["cudnn"].given_us, found["cudnn"].given_single_us) == (None, None)
    assert found["other"].given_us == 12.0


def test_given_ways_that_lost_are_timed_apart():
    given = {"cudnn channels_last": 1, "cublas mm": 2, "cublas lt": 3, "cudnnx channels_last": 4}
    assert unraced(given, [OURS, "cudnn padded", "cublas lt"]) == {"cudnn channels_last": 1, "cudnnx channels_last": 4}
    assert unraced(given, list(given)) == {}

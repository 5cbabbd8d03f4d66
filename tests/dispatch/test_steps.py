"""What each step of a plan adds to the time of a call: the plan's beginnings, timed beside each other."""

import json

from tilesmith import ConvSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.dispatch import measuring
from tilesmith.dispatch.measuring import time_steps
from tilesmith.measure.timing import Timing
from tilesmith.problems.driver import command_of

WRW = ConvSignature((2, 16, 12, 12), (32, 16, 3, 3), padding=1, mode="wrw")  # NCHW: copied to another layout first


def test_a_step_takes_what_its_plan_takes_longer_than_the_one_before(monkeypatch):
    launch = get_launchable(WRW)
    steps = launch.plan.run
    assert len(steps) > 2
    asked = []

    def time_plans(executables, *place, **options):
        asked.extend(each.plan.run for each in executables)
        return [Timing(10.0 * (count + 1) ** 2, 0.5, 9, "") for count in range(len(executables))]

    monkeypatch.setattr(measuring, "time_plans", time_plans)
    found = time_steps(launch)
    assert asked == [steps[: count + 1] for count in range(len(steps))]
    assert [each.time_us for each in found] == [10.0 * (2 * count + 1) for count in range(len(steps))]
    assert [each.step for each in found] == [getattr(step, "symbol", f"memset {WRW}") for step in steps]


def test_bench_shows_them(capsys):
    words = ["bench", command_of(WRW), "--against", "none", "--seconds", "0.1", "--launches"]
    assert run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.split()[:2] == ["row", "launch"]]
    steps = get_launchable(WRW).plan.run
    shown = [line.split() for line in lines[head + 1 : head + 1 + len(steps)]]
    assert [line[1] for line in shown] == [step.symbol.partition("__")[0] for step in steps]
    assert abs(sum(float(line[-1].rstrip("%")) for line in shown) - 100.0) < 1.0  # the shares
    assert run([*words, "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert [each["step"] for each in row["launches"]] == [step.symbol for step in steps]
    assert sum(each["time_us"] for each in row["launches"]) > 0

"""Every strategy: constraints, seeds, no repetition, defaults first; and what each is good for."""

import math
import random

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tilesmith.solvers.solver import Config, SearchSpace
from tilesmith.tune import model
from tilesmith.tune.model import Model
from tilesmith.tune.space import Point, SolverSpace, cross, mutate, neighbours, points, some_points, worthwhile
from tilesmith.tune.strategies import Defaults, Evolutionary, Exhaustive, Local, Random

AXES = {"mr": (1, 2, 4, 6, 8, 12, 14), "nv": (1, 2, 3, 4), "rows": (1, 2, 4, 7, 14, 28), "u": (1, 2, 4)}
ALL = [Exhaustive, Random, Local, Evolutionary, Model]


def config(**values):
    return Config(tuple(values.items()))


def allowed(c):
    return c["mr"] * c["nv"] <= 28 and c["rows"] * c["mr"] <= 120


SPACE = SearchSpace(AXES, allowed)
DEFAULT = config(mr=4, nv=2, rows=4, u=1)


def truth(solver, c):
    """A bumpy landscape with its valley away from the default, and one solver 1.2 times slower than the other."""
    if tuple(dict(c.values)) != tuple(AXES):
        return 1e-3
    accumulators = c["mr"] * c["nv"]
    time = 1 + (1 - accumulators / 28) ** 2 + 0.15 * abs(math.log2(c["rows"] / 7)) + (0.05 if c["u"] == 1 else 0)
    time += 0.03 * math.sin(c["mr"] * 3 + c["nv"] * 5)
    return time * (1.2 if solver == "b" else 1.0) * 1e-3


def rough_model(c):
    """Knows the register tile, not the rows."""
    return (1 + (1 - c["mr"] * c["nv"] / 28) ** 2) * 3e-4


def solvers(predict=rough_model):
    return [SolverSpace("a", SPACE, DEFAULT, predict), SolverSpace("b", SPACE, DEFAULT, predict)]


def run(strategy, trials, batch=8, noise=0.0):
    rng = random.Random(1)
    seen = []
    while len(seen) < trials:
        asked = strategy.ask(min(batch, trials - len(seen)))
        if not asked:
            break
        for point in asked:
            strategy.tell(point, truth(point.solver, point.config) * (1 + noise * rng.random()))
        seen += asked
    return seen


OPTIMUM = min(truth("a", c) for c in points(SPACE))


def found(seen):
    return min(truth(p.solver, p.config) for p in seen) / OPTIMUM


@pytest.mark.parametrize("kind", ALL)
def test_points_are_allowed_new_and_begin_with_the_defaults(kind):
    seen = run(kind(solvers(), 0), 120)
    assert len(seen) == len(set(seen))
    assert all(SPACE.contains(p.config) for p in seen)
    assert {Point("a", DEFAULT), Point("b", DEFAULT)} <= set(seen[:2])


@pytest.mark.parametrize("kind", ALL)
def test_a_seed_reproduces_the_order(kind):
    assert run(kind(solvers(), 7), 60) == run(kind(solvers(), 7), 60)


@pytest.mark.parametrize("kind", [Random, Evolutionary])
def test_another_seed_is_another_order(kind):
    assert run(kind(solvers(), 7), 60) != run(kind(solvers(), 8), 60)


@pytest.mark.parametrize("kind", ALL)
def test_what_was_told_before_is_not_asked_again(kind):
    known = run(kind(solvers(), 0), 40)
    second = kind(solvers(), 0)
    for point in known:
        second.tell(point, truth(point.solver, point.config))
    assert not set(run(second, 40)) & set(known)


@pytest.mark.parametrize("kind", ALL)
def test_failures_do_not_stop_a_search(kind):
    strategy = kind(solvers(), 0)
    for _ in range(6):
        for point in strategy.ask(8):
            bad = point.config["mr"] == 4
            strategy.tell(point, None if bad else truth(point.solver, point.config))
    assert all(p.config["mr"] != 4 for p in strategy.times)
    assert strategy.times


def test_exhaustive_ends_with_every_point():
    every = {Point(solver, c) for solver in "ab" for c in points(SPACE)}
    seen = run(Exhaustive(solvers(), 0), 10**6, batch=50)
    assert set(seen) == every
    assert len(seen) == len(every)


def test_defaults_are_one_point_an_arm():
    assert run(Defaults(solvers(), 0), 100) == [Point("a", DEFAULT), Point("b", DEFAULT)]


def test_local_and_evolutionary_come_close():
    assert found(run(Local(solvers(), 0), 120)) < 1.05
    assert found(run(Evolutionary(solvers(), 0), 200)) < 1.06


@pytest.mark.parametrize("seed", range(3))
def test_the_model_comes_within_two_percent_in_seventy_trials(seed):
    assert found(run(Model(solvers(), seed), 70, noise=0.02)) < 1.02


def test_the_model_survives_a_cost_model_that_is_wrong():
    upside_down = lambda c: 1 / rough_model(c)  # noqa: E731
    assert found(run(Model(solvers(upside_down), 0), 120)) < 1.05
    assert found(run(Model(solvers(lambda c: 1.0), 0), 120)) < 1.05


def test_the_model_learns_that_an_arm_is_better_than_predicted():
    pair = [
        SolverSpace("a", SPACE, DEFAULT, lambda c: 4 * rough_model(c)),
        SolverSpace("b", SPACE, DEFAULT, rough_model),
    ]
    seen = run(Model(pair, 0), 100)
    assert found(seen) < 1.03
    assert min(seen, key=lambda p: truth(p.solver, p.config)).solver == "a"


def test_the_model_ends_by_itself_long_before_the_space_does():
    seen = run(Model(solvers(), 0), 10**6)
    assert len(seen) < 0.8 * 2 * len(list(points(SPACE)))
    assert found(seen) < 1.02


def test_linear_algebra_takes_one_thread(monkeypatch):
    """With one for each core, small factorizations wait for busy compilers (``one_thread``)."""
    seen, condition = [], model.condition

    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    def watched(*arguments):
        seen.append(threads())
        return condition(*arguments)

    monkeypatch.setattr(model, "condition", watched)
    with threadpool_limits(2, user_api="blas"):
        run(Model(solvers(), 0), 20)
        assert seen
        assert set().union(*seen) == {1}
        assert threads() == {2}


def test_an_arm_that_is_predicted_hopeless_is_left_out():
    slow = SolverSpace("reference", SearchSpace({}), Config(()), lambda c: 1.0)
    assert [solver.name for solver in worthwhile([slow, *solvers()])] == ["a", "b"]
    assert worthwhile([slow]) == [slow]
    for kind in ALL:
        assert run(kind([slow], 0), 30) == [Point("reference", Config(()))]


def test_a_space_of_one_point():
    only = SolverSpace("x", SearchSpace({"mr": (4,)}), config(mr=4), lambda c: 1e-3)
    for kind in ALL:
        assert run(kind([only], 0), 10) == [Point("x", config(mr=4))]


def test_a_space_too_large_to_list():
    wide = SearchSpace({f"a{i}": tuple(range(10)) for i in range(8)}, lambda c: c["a0"] % 2 == 0)
    default = Config(tuple((f"a{i}", 0) for i in range(8)))
    solver = SolverSpace("wide", wide, default, lambda c: 1.0 + c["a1"])
    for kind in (Random, Local, Evolutionary, Model):
        strategy = kind([solver], 0)
        asked = strategy.ask(16)
        assert len(asked) == len(set(asked)) >= 1
        assert all(wide.contains(p.config) for p in asked)


def test_the_model_looks_among_what_a_solver_proposes_and_around_its_best():
    every = sorted(points(SPACE), key=rough_model)
    proposed = [DEFAULT, *every[::7]]
    solver = SolverSpace("a", SPACE, DEFAULT, rough_model, lambda: proposed)
    strategy = Model([solver], 0)
    first = strategy.ask(8)
    assert first[0] == Point("a", DEFAULT)
    assert {point.config for point in first} <= {*proposed, *neighbours(SPACE, DEFAULT)}
    assert solver.promising(strategy.rng, 5) == proposed[:5]
    assert found(run(Model([solver], 0), 70)) < 1.03


def test_neighbours_differ_in_one_axis_nearest_first():
    around = neighbours(SPACE, DEFAULT)
    assert around[0] in (config(mr=2, nv=2, rows=4, u=1), config(mr=6, nv=2, rows=4, u=1))
    for c in around:
        assert sum(c[name] != DEFAULT[name] for name in AXES) == 1
        assert allowed(c)
    assert len(set(around)) == len(around)


def test_mutation_and_crossing_stay_inside():
    rng = random.Random(0)
    other = config(mr=14, nv=2, rows=7, u=4)
    for _ in range(100):
        assert SPACE.contains(mutate(SPACE, DEFAULT, rng))
        child = cross(SPACE, DEFAULT, other, rng)
        assert SPACE.contains(child)
        assert all(child[name] in (DEFAULT[name], other[name]) for name in AXES)
    assert some_points(SPACE, DEFAULT, rng, 10) == list(points(SPACE))

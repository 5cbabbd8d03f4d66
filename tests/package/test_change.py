"""Packages compared and changed: against what sets of their entries say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from package_samples import MANIFEST, TARGET, binary, digest, package, plan, row
from tilesmith.errors import PackageError
from tilesmith.package.change import DIFFERS, ONLY_FIRST, ONLY_SECOND, Difference, diff, merge, remove
from tilesmith.package.files import PackageFile, records_in
from tilesmith.package.form import encode
from tilesmith.package.making import PackedPlan, artifacts_of, make_package
from tilesmith.package.records import Form, Kind, name_of
from tilesmith.plan.serial import decode


def whole(made):
    """The package, once its own reader has found nothing wrong with it."""
    PackageFile(encode(made)).verify()
    return made


def solvers(made, name):
    return [decode(entry.content()).solver for entry in made.of_kind(Kind.PLAN) if entry.name == name]


def test_differences():
    first, second = package(3), package(4, replace(MANIFEST, counter=9))
    name = name_of("conv1;fwd;n=3", TARGET)
    assert diff(first, first) == ()
    assert diff(first, second) == (
        Difference("manifest", "counter", 0, DIFFERS),
        Difference("plan", name, 0, ONLY_SECOND),
        Difference("plan", name, 1, ONLY_SECOND),
        Difference("find", name, 0, ONLY_SECOND),
        Difference("perf", name_of("conv1;fwd;n=3", TARGET, "c_dense"), 0, ONLY_SECOND),
    )
    assert {each.what for each in diff(second, first)} == {DIFFERS, ONLY_FIRST}


def test_another_compression_is_no_difference():
    made = package(1)
    entries = tuple(replace(e, stored=e.content(), form=Form.PLAIN) for e in made.entries)
    assert diff(made, replace(made, entries=entries)) == ()
    assert encode(replace(made, entries=entries)) != encode(made)


def test_parts_merge_to_the_whole():
    parts = [remove(package(9), lambda entry, k=k: int(entry.problem.rpartition("=")[2]) % 3 != k) for k in range(3)]
    assert [len(part.of_kind(Kind.FIND)) for part in parts] == [3, 3, 3]
    assert merge(parts) == merge([*parts, parts[0]]) == package(9)


def test_plans_of_one_problem_are_ranked_anew():
    """Both packages have c_dense with the same config: the later one's stays, with its time."""
    a, b, c = binary(1), binary(2), binary(3)
    held = {digest(data): data for data in (a, b, c)}
    first = make_package(
        MANIFEST, [PackedPlan(plan("p", a), 1, 5.0), PackedPlan(plan("p", b, solver="s"), 1, 7.0)], held
    )
    second = make_package(MANIFEST, [PackedPlan(plan("p", c), 1, 9.0)], held)
    merged = whole(merge([first, second]))
    name = name_of("p", TARGET)
    assert solvers(merged, name) == ["s", "c_dense"]
    assert [entry.time_us for entry in merged.of_kind(Kind.PLAN)] == [7.0, 9.0]
    assert {entry.name for entry in merged.of_kind(Kind.BINARY)} == {digest(b), digest(c)}


def test_rows_of_one_problem_follow_the_policy():
    old, new = row("p", 5.0, date="2026-01-01T00:00:00Z"), row("p", 9.0, date="2026-02-01T00:00:00Z")
    other = row("p", 7.0, solver="c_direct")
    first, second = make_package(MANIFEST, [], {}, [new]), make_package(MANIFEST, [], {}, [old, other])
    for policy, winner in (("newest", new), ("fastest", old), ("mine", new)):
        (entry,) = whole(merge([first, second], policy)).entries
        assert records_in(Kind.FIND, entry.content()) == tuple(sorted((winner, other), key=lambda r: r.time_us))


def test_what_cannot_be_merged():
    with pytest.raises(PackageError, match="different targets"):
        merge([package(1), package(1, replace(MANIFEST, target="sm_90a:132:h200"))])
    with pytest.raises(PackageError, match="nothing to merge"):
        merge([])
    mixed = merge([package(1), package(1, replace(MANIFEST, generator="f" * 16, counter=8))])
    assert (mixed.manifest.generator, mixed.manifest.counter) == ("mixed", 8)


def test_what_is_removed_takes_its_binaries():
    left = whole(remove(package(4), lambda entry: entry.problem.endswith(("n=1", "n=3"))))
    assert {entry.problem for entry in left.entries} == {"conv1;fwd;n=0", "conv1;fwd;n=2", ""}
    assert {entry.name for entry in left.of_kind(Kind.BINARY)} == {digest(binary(0))}
    best_gone = whole(remove(package(2), lambda entry: entry.kind == Kind.PLAN and entry.rank == 0))
    assert [entry.rank for entry in best_gone.of_kind(Kind.PLAN)] == [0, 0]
    assert solvers(best_gone, name_of("conv1;fwd;n=0", TARGET)) == ["c_direct"]
    assert all(artifacts_of(entry) for entry in best_gone.of_kind(Kind.PLAN))
    assert remove(package(2), lambda entry: True).entries == ()

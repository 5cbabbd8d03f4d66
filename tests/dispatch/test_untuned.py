"""An untuned choice that is kept for the next process stands for the same estimates, and for nothing else."""

from dataclasses import replace

import pytest

from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch import choose, untuned
from tilesmith.dispatch.facts import options_of, with_predictions
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import explained, resolve
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers import table_cpu
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.inventory import CHOICE, inventory, remove_damaged

PROBLEM = GemmSignature(m=24, n=16, k=8)
TARGET = host_target(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cache that holds the plan and the choice of ``PROBLEM``."""
    folder = tmp_path_factory.mktemp("untuned")
    resolve(Request(PROBLEM, TARGET, "fast", open_database(None), ArtifactCache(folder)))
    return folder


@pytest.fixture
def request_(folder):
    return Request(PROBLEM, TARGET, "fast", open_database(None), ArtifactCache(folder))


def kept(folder):
    (entry,) = [entry for entry in inventory(folder, verify=True) if entry.kind == CHOICE]
    return entry


def test_the_next_process_estimates_nothing(folder, request_, monkeypatch):
    expected = explained(request_)
    monkeypatch.setattr("tilesmith.dispatch.resolve.options_of", lambda *_: pytest.fail("estimated again"))
    found = resolve(request_)
    assert (found.choice.solver, found.choice.config) == (expected.solver, expected.config)
    assert found.built.remembered
    assert with_predictions(found.choice.trace, PROBLEM, TARGET) == expected.trace
    assert kept(folder).what == f"{expected.solver} {expected.config}"


def test_it_is_the_choice_of_these_facts_alone(request_, monkeypatch):
    assert untuned.recall(request_) is not None
    others = {
        "mode": "hybrid", "only": "c_reference", "external": True, "target": replace(TARGET, cores=TARGET.cores + 1),
        "signature": GemmSignature(m=25, n=16, k=8),
    }  # fmt: skip
    for name, value in others.items():
        assert untuned.recall(replace(request_, **{name: value})) is None, name
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", "spec.json")
    assert untuned.recall(request_) is None
    monkeypatch.delenv("TILESMITH_TUNING_SPEC_PATH")
    for name, changed in (("_rules", "other rules"), ("maker_of", ("another generator",))):
        with monkeypatch.context() as patch:
            patch.setattr(untuned, name, lambda *_, changed=changed: changed)
            assert untuned.recall(request_) is None, name


@pytest.mark.parametrize("cores", [TARGET.cores, TARGET.cores + 1])
def test_a_record_of_this_or_a_near_target_comes_first(request_, cores):
    option = next(option for option in options_of(PROBLEM, TARGET) if option.accepted)
    target = replace(TARGET, cores=cores)
    revision = option.candidate.solver.revision
    record = Record(PROBLEM.canonical.key(), target.name, option.candidate.name, option.config, revision, 5.0, 0.1, 9)
    database = open_database(None)
    database.put_result(record)
    asked = replace(request_, databases=database)
    assert untuned.recall(asked) is None
    assert resolve(asked).choice.record == record


def test_a_damaged_one_is_estimated_again(folder, request_):
    path, right = kept(folder).path, untuned.recall(request_)
    data = path.read_bytes()
    for at in range(0, len(data), 37):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        assert untuned.recall(request_) is None
    assert kept(folder).damage
    remove_damaged(folder)
    resolve(request_)
    assert path.read_bytes() == data
    assert untuned.recall(request_) == right


@pytest.mark.parametrize("change", [{"accepted": 1}, {"accepted": [[1, "", 1.0]]}, {"solver": "gone"}, {"config": 3}])
def test_a_record_of_another_form_is_none(folder, request_, change):
    path = kept(folder).path
    name, data = f"choices/{path.name}", path.read_bytes()
    record, _ = untuned.unbind_with_record(name, data)
    path.write_bytes(untuned.bind_with_record(name, record | change, b""))
    assert untuned.recall(request_) is None
    path.write_bytes(data)


def test_a_solver_that_the_table_lacks_is_not_taken(folder, request_, monkeypatch):
    """A table that was changed in the process; its files are as they were."""
    chosen = untuned.recall(request_).solver
    monkeypatch.setattr(table_cpu, "CPU_SOLVERS", [each for each in table_cpu.CPU_SOLVERS if each.name != chosen])
    assert resolve(request_).choice.solver != chosen


def test_what_is_not_kept(tmp_path, request_):
    """Choices that rest on more than estimates: ``explained`` changes nothing, and a second choice is no first one."""
    request = replace(request_, cache=ArtifactCache(tmp_path))
    choice = explained(request)
    assert not list(tmp_path.glob("choices/*"))
    for other in (replace(choice, basis="database"), replace(choice, basis="nearest target")):
        untuned.keep(request, other)
    untuned.keep(replace(request, mode="strict"), choice)
    assert not list(tmp_path.glob("choices/*"))
    assert choice.basis == choose.PREDICTION

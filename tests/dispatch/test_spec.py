"""The tuning spec: choices of a file before those of every database."""

import pytest

from tilesmith import ConvSignature, get_launchable
from tilesmith.dispatch.measuring import check_launchable
from tilesmith.errors import FileFormatError

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")


@pytest.fixture
def spec(tmp_path, monkeypatch):
    path = tmp_path / "spec.txt"
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", str(path))

    def write(*lines):
        path.write_text("\n".join(("# choices", *lines)) + "\n")
        return path

    return write


@pytest.mark.parametrize("mode", ["fast", "hybrid", "strict"])
def test_a_line_decides(spec, mode):
    path = spec(f"{SMALL.key()} * c_reference")
    get_launchable(SMALL, mode="fast")  # strict compiles nothing
    launch = get_launchable(SMALL, mode=mode)
    assert (launch.solver, launch.choice.basis, launch.choice.layer) == ("c_reference", "tuning spec", str(path))
    assert check_launchable(launch).ok


def test_config_target_and_last_line(spec, monkeypatch):
    free = get_launchable(SMALL, mode="fast", only="c_dense")
    spec(
        f"{SMALL.key()} * c_reference",
        f"{SMALL.key()} {free.target.name} c_dense {free.config} # the last one wins",
        f"{SMALL.key()} aarch64:1 c_reference",
    )
    launch = get_launchable(SMALL, mode="fast")
    assert (launch.solver, launch.config) == ("c_dense", free.config)


def test_other_problems_are_not_touched(spec):
    other = ConvSignature((1, 8, 8, 8), (8, 3, 3, 8), shared_layout="NHWC")
    spec(f"{other.key()} * c_reference")
    assert get_launchable(SMALL, mode="fast").choice.basis == "prediction"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{key} *", "KEY TARGET SOLVER"),
        ("conv9;x * c_reference", "conv9;x"),
        ("{key} * c_nonesuch", "c_nonesuch"),
        ("{key} sparc:1 c_reference", "sparc"),
        ("{key} * c_dense mh=x", "mh=x"),
        ("{key} * c_dense mh=1", "outside the search space"),
    ],
)
def test_bad_lines_are_refused_by_number(spec, line, said):
    path = spec("", line.format(key=SMALL.key()))
    with pytest.raises(FileFormatError) as caught:
        get_launchable(SMALL, mode="fast")
    assert f"{path}:3: " in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_file_is_an_error(monkeypatch):
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", "/nonexistent/spec.txt")
    with pytest.raises(FileFormatError, match="/nonexistent/spec.txt: cannot be read"):
        get_launchable(SMALL, mode="fast")

"""One limit on threads, said in one way wherever a number of threads comes from."""

import pytest

from tilesmith import ConvSignature, env, get_launchable
from tilesmith.cli.main import run
from tilesmith.errors import EnvironmentValueError, TargetError
from tilesmith.plan import check

SMALL = ConvSignature((1, 4, 4, 4), (4, 1, 1, 4), shared_layout="NHWC")


def test_the_limit_is_that_of_plans():
    assert env.MAX_THREADS == check.MAX_THREADS


def test_the_most_threads_run():
    launch = get_launchable(SMALL, threads=env.MAX_THREADS, only="c_reference")
    assert launch.plan.threads == env.MAX_THREADS


@pytest.mark.parametrize("count", [0, -1, 1025, 4096, 2**31])
def test_beyond_the_limit(count, monkeypatch, capsys):
    with pytest.raises(TargetError, match=f"{count}.*from 1 to 1024"):
        get_launchable(SMALL, threads=count)
    assert run(["verify", "conv -F 1", f"--threads={count}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(count) in line
    assert "1024" in line
    monkeypatch.setenv("TILESMITH_NUM_THREADS", str(count))
    with pytest.raises(EnvironmentValueError, match=f"'{count}' is not an integer from 1 to 1024"):
        get_launchable(SMALL)
    assert run(["verify", "conv -F 1"]) == 2
    assert "1024" in capsys.readouterr().err

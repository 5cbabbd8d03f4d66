"""``tilesmith.tune`` is a function and a package, and ``dir(tilesmith)`` has the public names alone."""

import inspect
import subprocess
import sys

import pytest

import tilesmith
from fresh_home import cache_dir, home  # noqa: F401
from tilesmith import GemmSignature, get_launchable
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import ArgumentError, CommandError
from tilesmith.ready import tuning

GEMM = GemmSignature(16, 24, 8)


def test_public_names():
    assert dir(tilesmith) == sorted([*tilesmith.__all__, *tilesmith._TORCH_HOMES])
    assert set(tilesmith.__all__) == set(tilesmith._HOMES)
    assert all(getattr(tilesmith, name) is not None for name in tilesmith.__all__)


def test_names_that_need_pytorch_say_so():
    code = "import sys; sys.modules['torch'] = None; import tilesmith; from tilesmith import *; tilesmith.tune_model"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: tilesmith.tune_model needs PyTorch")


ORDERS = (
    "import tilesmith.tune.session; import tilesmith; f = tilesmith.tune",
    "import tilesmith; f = tilesmith.tune; import tilesmith.tune.session",
    "from tilesmith import tune as f; import tilesmith.tune.session as s; assert s.tune",
    "import tilesmith.tune.space; from tilesmith import tune as f; import tilesmith.tune.session",
    "from tilesmith import *; f = tune; import tilesmith.tune.session",
)


@pytest.mark.parametrize("order", ORDERS)
def test_an_import_of_a_module_of_the_package_does_not_replace_the_function(order):
    code = (
        f"{order}; import sys, tilesmith; assert f is tilesmith.tune and callable(f); "
        "assert tilesmith.tune.session is sys.modules['tilesmith.tune.session']"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_problem_is_tuned_and_found(home):  # noqa: F811
    assert inspect.signature(tilesmith.tune) == inspect.signature(tuning.tune)
    before = get_launchable(GEMM, threads=1, mode="fast")
    found = tilesmith.tune(GEMM, threads=1, trials=3, seconds=5.0)
    assert found.record.ok
    assert found.trials >= 1
    assert open_databases().writable.best(found.problem, found.target) == found.record
    after = get_launchable(GEMM, threads=1, mode="fast")
    assert (before.choice.basis, after.choice.basis) == ("prediction", "database")
    assert after.remembered


def test_a_command_names_several_problems(home):  # noqa: F811
    command = "conv -n 1 -c 8 -H 6 -W 6 -k 8 -y 3 -x 3 -F 5"
    found = tilesmith.tune(command, threads=1, trials=1, seconds=5.0)
    assert [";fwd;" in each.problem for each in found] == [True, False]


def test_what_is_no_problem(home):  # noqa: F811
    with pytest.raises(CommandError):
        tilesmith.tune("convolve everything")
    with pytest.raises(ArgumentError, match="int is neither a signature nor text"):
        tilesmith.tune(3)

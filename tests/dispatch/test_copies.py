"""Models that hold launchables and prepared layers are copied and saved like any other."""

import copy
import io
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from tilesmith import ConvSignature, Epilogue, GemmSignature, get_launchable
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.errors import NoSolutionError

SIGNATURE = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC", epilogue=Epilogue(bias=True))
PITCHED = ConvSignature(
    (1, 6, 6, 8), (8, 3, 3, 8), shared_layout="NHWC", kernel_strides=(3 * 3 * 12, 3 * 12, 12, 1), dtype="bf16"
)
MATRIX = GemmSignature(5, 9, 7, trans_b=True)

CHILD = """
import pickle, sys
launch, prepared, others, want = pickle.load(open(sys.argv[1], "rb"))
got = prepared(*others)
assert got.tobytes() == want.tobytes(), (got, want)
print(launch.solver, launch.config, launch.target.cores)
"""


def parts(signature, kind):
    """A launchable, its filter and the other arguments."""
    launch = get_launchable(signature)
    args = signature.get_sample_args(seed=3) if kind == "numpy" else signature.get_sample_args("cpu", seed=3)
    return launch, args[1], (args[0], *args[2:])


def bits(result):
    return (
        result.tobytes() if isinstance(result, np.ndarray) else result.contiguous().view(torch.uint8).numpy().tobytes()
    )


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("signature", [SIGNATURE, PITCHED, MATRIX], ids=["conv", "pitched", "gemm"])
@pytest.mark.parametrize("anew", [False, True], ids=["alive", "anew"])
def test_copies_give_the_same_bits(signature, kind, anew):
    launch, filter_, others = parts(signature, kind)
    want = bits(launch(others[0], filter_, *others[1:]))
    prepared = launch.prepare(filter_)
    data = pickle.dumps((launch, prepared, launch.bound))
    if anew:
        forget_launchables()
    for again, layer, bound in (
        pickle.loads(data),
        copy.deepcopy((launch, prepared, launch.bound)),
        tuple(map(copy.copy, (launch, prepared, launch.bound))),
    ):
        assert bits(again(others[0], filter_, *others[1:])) == want
        assert bits(bound(others[0], filter_, *others[1:])) == want
        assert bits(layer(*others)) == want
        assert (again.solver, again.config, again.choice) == (launch.solver, launch.config, launch.choice)
    assert bits(pickle.loads(pickle.dumps(layer))(*others)) == want


def test_a_copy_of_a_layer_keeps_its_filter():
    launch, filter_, others = parts(SIGNATURE, "torch")
    filter_[0, 0, 0, 0] = float("inf")  # kernels that skip the padding then leave the work to one that reads the filter
    layer = launch.prepare(filter_)
    want = bits(layer(*others))
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        filter_.zero_()
    assert bits(twin(*others)) == want


def test_a_saved_layer_gives_the_same_bits_in_another_process(tmp_path):
    launch, filter_, others = parts(SIGNATURE, "numpy")
    prepared = launch.prepare(filter_)
    place = tmp_path / "layer.pickle"
    place.write_bytes(pickle.dumps((launch, prepared, others, prepared(*others))))
    environment = {**os.environ, "TILESMITH_DB_PATH": str(tmp_path / "other.db")}
    for mode, cache in (("fast", None), ("strict", None), ("fast", tmp_path / "cache")):
        environment["TILESMITH_FIND_MODE"] = mode
        environment.update({"TILESMITH_CACHE_DIR": str(cache)} if cache else {})
        command = [sys.executable, "-c", CHILD, place]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [*f"{launch.solver} {launch.config}".split(), "1"]


def test_modules_with_layers_are_copied_and_saved():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.launch, self.filter, _ = parts(SIGNATURE, "torch")
            self.layer = self.launch.prepare(self.filter)

        def forward(self, x, b):
            return self.layer(x, b) + self.launch(x, self.filter, b)

    globals()["Model"] = Model
    Model.__qualname__ = "Model"
    model, (x, b) = Model(), parts(SIGNATURE, "torch")[2]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(twin(x, b), model(x, b))


def test_a_copy_for_a_kernel_that_is_gone_is_decided_anew(monkeypatch):
    launch, filter_, others = parts(MATRIX, "numpy")
    want = launch(others[0], filter_)
    data = pickle.dumps(launch)
    forget_launchables()
    monkeypatch.setattr("tilesmith.solvers.table.candidates", lambda *_: ())
    again = pickle.loads(data)
    np.testing.assert_allclose(again(others[0], filter_), want, rtol=1e-5)


def test_strict_mode_stays_strict_when_a_launchable_is_loaded(tmp_path, monkeypatch):
    data = pickle.dumps(get_launchable(MATRIX))
    forget_launchables()
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "empty"))
    with pytest.raises(NoSolutionError, match="tilesmith preload"):
        pickle.loads(data)


def test_what_no_launchable_made_says_so():
    bound = get_launchable(MATRIX).executable.bind(MATRIX)
    a, b = MATRIX.get_sample_args()
    for each in (bound, bound.prepare(b)):
        with pytest.raises(TypeError, match="get_launchable"):
            pickle.dumps(each)

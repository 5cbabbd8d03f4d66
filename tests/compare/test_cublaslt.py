"""cuBLASLt's objects are given back: a stand-in library counts what is made and what is destroyed."""

import gc

import pytest

from tilesmith import GemmSignature
from tilesmith.compare import cublaslt


class Library:
    """Makes numbered objects. Its heuristic knows two results, or refuses with ``status``."""

    def __init__(self, status=0):
        self.handles, self.alive, self.made, self.status = 0, set(), 0, status

    def cublasLtCreate(self, handle):
        self.handles += 1
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments):
        arguments[-1]._obj.value = 2
        return self.status

    def __getattr__(self, name):
        def call(made, *arguments):
            if name.endswith("Create"):
                self.made += 1
                made._obj.value = self.made
                self.alive.add(self.made)
            elif name.endswith("Destroy"):
                self.alive.remove(made.value)
            return 0

        return call


@pytest.fixture(params=[0, 15])
def library(request, monkeypatch):
    found = Library(request.param)
    monkeypatch.setattr(cublaslt, "_library", lambda: found)
    cublaslt._handle.cache_clear()
    yield found
    cublaslt._handle.cache_clear()


def test_what_a_gemm_makes_is_given_back_and_one_handle_serves_all(library):
    for _ in range(3):
        if library.status:
            with pytest.raises(RuntimeError, match="status 15"):
                cublaslt.LtGemm(GemmSignature(64, 64, 64, dtype="bf16"))
        else:
            gemm = cublaslt.LtGemm(GemmSignature(64, 64, 64, dtype="bf16", trans_b=True))
            assert (gemm.count, len(library.alive)) == (2, 5)
            del gemm
    gc.collect()
    assert library.made == 15
    assert not library.alive
    assert library.handles == 1

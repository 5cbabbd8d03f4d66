"""A rival as another package may add one: a GEMM by NumPy, as it is and by ``einsum``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tilesmith import GemmSignature
from tilesmith.compare.rival import Setting, Way


class NumpyRival:
    name = "numpy"
    families = ("cpu",)

    def is_here(self) -> bool:
        return True

    def version(self) -> str:
        return f"NumPy {np.__version__}"

    @contextmanager
    def ways(self, setting: Setting) -> Iterator[Sequence[Way]]:
        signature = setting.signature
        if not isinstance(signature, GemmSignature) or len(setting.values) > 2 or signature.dtype != "fp32":
            yield ()
            return
        a, b = setting.values
        a, b = a.T if signature.trans_a else a, b.T if signature.trans_b else b
        shape = (signature.batch, signature.m, signature.n)
        ways = {"matmul": lambda: a @ b, "einsum": lambda: np.einsum("mk,kn->mn", a, b)}
        yield [Way(name, (call,), lambda result: result.reshape(shape)) for name, call in ways.items()]


RIVAL = NumpyRival()

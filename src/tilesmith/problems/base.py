"""The methods that ``ConvSignature`` and ``GemmSignature`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class Problem:
    """Base of ``ConvSignature`` and ``GemmSignature``; each defines ``canonical`` and the text of the key."""

    @property
    def canonical(self) -> Any:
        """The canonical form, which all signatures of one problem share."""
        raise NotImplementedError

    def key(self) -> str:
        """The canonical form as text: the problem's name in databases. It never changes (``problems/key_text.py``)."""
        key: str = self.canonical._key
        return key

    def get_sample_args(self, device: Any = None, seed: int | None = None) -> tuple[np.ndarray[Any, Any], ...]:
        """Make random arguments for a call, in the call's order.

        Order: fwd ``x, w, [bias], [residual], [scale]``; bwd ``dy, w, [bias], [residual], [scale]``; wrw ``dy, x``;
            bgrad
        ``dy``; GEMM ``a, b, [group_ends], [a_scale, b_scale], [bias], [residual], [scale], [c]``. Groups of rows have
            random sizes, some of them 0, and some rows may belong to none.

        Args:
            device: Device of PyTorch, such as ``"cpu"`` or ``"cuda"``. None: NumPy arrays.
            seed: Seed of the random numbers, from 0. None: 0.

        Returns:
            A tuple of NumPy arrays, or of torch tensors on ``device``.

        Raises:
            ArgumentError: ``seed`` is no integer from 0.
        """
        from tilesmith.problems.samples import sample_args, torch_args

        args = sample_args(self, seed or 0)  # type: ignore[arg-type]  # one of the two signatures
        return args if device is None else torch_args(args, device)

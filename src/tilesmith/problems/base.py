"""The methods that ``ConvSignature`` and ``GemmSignature`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class Problem:
    """The base of both signatures, each of which has its own ``canonical`` and, of that, the text of its key."""

    @property
    def canonical(self) -> Any:
        """The one form of all spellings of the problem."""
        raise NotImplementedError

    def key(self) -> str:
        """The canonical form as text: the problem's name in databases, stable for ever; see ``problems/keys.py``."""
        key: str = self.canonical._key
        return key

    def get_sample_args(self, device: Any = None, seed: int | None = None) -> tuple[np.ndarray[Any, Any], ...]:
        """Random arguments, in a convolution's order of ``mode`` or as ``a, b, [bias], [residual], [scale], [c]``.

        NumPy arrays, or torch tensors on ``device`` when it is given.
        """
        from tilesmith.problems.samples import sample_args, torch_args

        args = sample_args(self, seed or 0)  # type: ignore[arg-type]  # one of the two signatures
        return args if device is None else torch_args(args, device)

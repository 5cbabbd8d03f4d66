"""A model's graph with its chains as single calls: what an optimized model runs in evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.compiler import is_dynamo_compiling

from tilesmith.problems.epilogue import Epilogue
from tilesmith.torch_ops.modules.chains import Chain
from tilesmith.torch_ops.modules.computed import convolved, multiplied
from tilesmith.torch_ops.modules.finish import activate
from tilesmith.torch_ops.modules.folding import Folded
from tilesmith.torch_ops.modules.quick import Quick


class Step:
    """Runs one chain. Its name and module are what ``torch.fx`` prints for it."""

    def __init__(self, layer: Any, norm: Any, epilogue: Epilogue, number: int) -> None:
        self.layer, self.norm, self.epilogue = layer, norm, epilogue
        self.folded = Folded(layer, norm)
        self._compute: Callable[..., Any] = multiplied if isinstance(layer, nn.Linear) else convolved
        self._quick = Quick()
        self.__name__ = f"step_{number}"

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> Any:
        w, b = self.folded.filter, self.folded.bias
        if is_dynamo_compiling():
            found = self._compute(self.layer, x, w, b, added, self.epilogue)
        else:
            # The program is made anew when an attribute of the layer has changed.
            found = self._quick.result(x, w, b, added, None)
            if found is None:
                found = self._compute(self.layer, x, w, b, added, self.epilogue, quick=self._quick)
        if found is not None:
            return found
        y = self.layer(x)
        if self.norm is not None:
            y = self.norm(y)
        return activate(self.epilogue, y if added is None else y + added)


class Program:
    """The forward pass of ``root`` with its chains as steps, as long as its modules are what they were."""

    def __init__(self, root: nn.Module, graph: fx.Graph, chains: Sequence[Chain]) -> None:
        self.steps: list[Step] = []
        calls: dict[fx.Node, fx.Node] = {}  # the last node of a chain that is done -> its step
        for number, chain in enumerate(chains):
            norm = root.get_submodule(chain.norm) if chain.norm else None
            step = Step(root.get_submodule(chain.layer), norm, chain.epilogue, number)
            self.steps.append(step)
            # Without a sum all that a chain reads is there at its layer; a sum waits for its other tensor.
            with graph.inserting_before(chain.nodes[0] if chain.added is None else chain.last):
                added = () if chain.added is None else (calls.get(chain.added, chain.added),)
                call = calls[chain.last] = graph.call_function(step, (chain.nodes[0].args[0], *added))
            chain.last.replace_all_uses_with(call)
            for node in reversed(chain.nodes):
                graph.erase_node(node)
        code = graph.python_code("self")
        names: dict[str, Any] = dict(code.globals)
        exec(compile(code.src, "<tilesmith.optimize>", "exec"), names)
        self.forward: Callable[..., Any] = names["forward"]

    def refresh(self, anew: bool = False) -> bool:
        """Fold anew what has changed; False if that cannot be seen for some parameter."""
        return all(tuple(step.folded.refresh(anew) for step in self.steps))

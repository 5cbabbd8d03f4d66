"""``options={"tune": seconds}``: searches kernels for the problems of a graph before they are decided."""

from __future__ import annotations

import logging
import time
from collections import Counter

from torch.fx import Graph
from torch.utils._python_dispatch import _disable_current_modes

from tilesmith.errors import TilesmithError
from tilesmith.problems.keys import parse_key
from tilesmith.torch_ops.compile.decide import Decider
from tilesmith.torch_ops.compile.races import race
from tilesmith.torch_ops.compile.rewrite import Rewriter

LEAST_S = 2.0  # of one search; problems for which less is left stay untuned
_log = logging.getLogger("tilesmith.compile")


def tune_graph(graph: Graph, device: str, seconds: float, frozen: bool) -> None:
    """Search for ``seconds``, longest where most time is spent by the estimate; results go to the user's database."""
    from tilesmith.ready.tuning import tune  # what searches needs a third of the imports, and few graphs are tuned

    end = time.monotonic() + seconds
    shares = _shares(graph, device, frozen)
    decide = Decider(device)
    for key, _ in shares.most_common():
        left = end - time.monotonic()
        own = max(LEAST_S, left * shares[key] / (sum(shares.values()) or 1.0))
        del shares[key]
        if left < LEAST_S:
            _log.warning("no time is left to tune %s", key)
            continue
        signature = parse_key(key)
        try:
            with _disable_current_modes():  # Inductor's would make what is measured fake tensors
                tune(signature, device=device, seconds=min(own, left))
                if decide.target.family == "cpu":
                    race(signature, decide.target)
        except TilesmithError as error:
            _log.warning("%s is not tuned: %s", key, error)


def _shares(graph: Graph, device: str, frozen: bool) -> Counter[str]:
    """The problems that kernels exist for, with their estimated time in the graph, in microseconds."""
    copy = Graph()
    copy.output(copy.graph_copy(graph, {}))
    rewriter = Rewriter(copy, Decider(device, "always"), frozen)
    rewriter.run()
    shares: Counter[str] = Counter()
    for line in rewriter.lines:
        if line.ours and "reference" not in line.solver:
            shares[line.problem] += max(1, round(line.time_us or 1.0))
    return shares

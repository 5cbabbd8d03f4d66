"""Finds the executor for an address: the only place that knows every kind of executor."""

from __future__ import annotations

from importlib.metadata import entry_points

from tilesmith.errors import ArgumentError, FleetError
from tilesmith.fleet.dask_cluster import open_dask
from tilesmith.fleet.executor import Executor, Wanted

ENTRY_POINTS = "tilesmith.executors"
DASK = ("tcp", "tls", "ws", "wss", "ucx", "local")


def open_executor(wanted: Wanted) -> Executor:
    """The executor for an address: Dask's for its own addresses, else that of the entry point named before the colon.

    Raises ``FleetError`` where nothing answers or a package is missing, ``ArgumentError`` for an unknown address.
    """
    scheme = wanted.address.partition(":")[0]
    if scheme in DASK:
        return open_dask(wanted)
    found = [point for point in entry_points(group=ENTRY_POINTS) if point.name == scheme]
    if not found:
        known = sorted({point.name for point in entry_points(group=ENTRY_POINTS)})
        others = "".join(f", {name}:..." for name in known)
        raise ArgumentError(
            f"cluster {wanted.address!r} is not known; write tcp://HOST:PORT or tls://HOST:PORT (a Dask scheduler), "
            f"local:N (N workers here){others}"
        )
    try:
        made: Executor = found[0].load()(wanted)
    except ImportError as error:
        raise FleetError(f"cluster {wanted.address}: its executor cannot be loaded: {error}") from None
    return made

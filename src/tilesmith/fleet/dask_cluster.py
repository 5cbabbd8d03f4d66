"""Workers of a Dask cluster: the one place that imports ``distributed``.

Dask connects, starts, restarts and watches the workers, and carries functions and bytes to them. Which task runs where
is decided by ``fleet.spread``: each task is pinned to one worker, which has one at a time.

NOTE: all who reach a Dask scheduler can run code on its workers and clients (``docs/guide/fleets.md``).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import uuid
from dataclasses import dataclass
from typing import Any

from tilesmith.errors import ArgumentError, FleetError
from tilesmith.fleet.executor import Event, Place, Replied, Run, Told, Wanted
from tilesmith.fleet.survey import read_survey

ANSWER_S = 20.0  # of a scheduler that is connected
FETCH_S = 30.0  # for a reply of a few MB
CLOSE_S = 5.0
MOST_LOCAL = 256
INSTALL = "--cluster needs Dask: type `pip install distributed`"
_log = logging.getLogger("tilesmith.fleet")


def open_dask(wanted: Wanted) -> DaskExecutor:
    """Connect to a scheduler, or (``local:N``) start one with N workers in processes of this machine."""
    _distributed()
    if not wanted.address.startswith("local"):
        return DaskExecutor(wanted)
    count = wanted.address.removeprefix("local").removeprefix(":") or "1"
    if not (count.isascii() and count.isdecimal() and len(count) < 4 and 1 <= int(count) <= MOST_LOCAL):
        raise ArgumentError(f"cluster {wanted.address!r}: write local:N with N workers, from 1 to {MOST_LOCAL}")
    if wanted.family != "cpu":
        raise ArgumentError(
            f"cluster {wanted.address!r} is for --device cpu; --device all takes every GPU of a machine"
        )
    try:
        cluster = _distributed().LocalCluster(
            n_workers=int(count), threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0,
            silence_logs=logging.ERROR,
        )  # fmt: skip
    except (OSError, TimeoutError, RuntimeError) as error:
        raise FleetError(f"cluster {wanted.address} cannot be started: {error}") from None
    try:
        return DaskExecutor(wanted, cluster)
    except BaseException:
        cluster.close(timeout=CLOSE_S)
        raise


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise FleetError(INSTALL) from None
    return distributed


def on_worker(run: Run, device: str, payload: bytes, task: str, topic: str) -> bytes:
    """The function that Dask runs on a worker."""
    worker = _distributed().get_worker()

    def tell(told: bytes) -> None:
        worker.log_event(topic, {"task": task, "payload": told})

    return run(device, payload, tell)


@dataclass
class _Worker:
    """A process of the cluster. ``place`` is None until it has answered, and if it cannot be used."""

    name: str
    address: str
    folder: str  # another process at this address has another one
    asked: Any
    place: Place | None = None


class DaskExecutor:
    """An ``Executor`` of a Dask scheduler's workers; ``cluster`` is one to be closed with it."""

    ahead = True

    def __init__(self, wanted: Wanted, cluster: Any = None) -> None:
        distributed = _distributed()
        self._wanted, self._cluster = wanted, cluster
        self._topic = f"tilesmith-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: dict[str, _Worker] = {}  # by name
        self._futures: dict[str, tuple[str, Any]] = {}  # task -> worker's name, future
        self._dropped: set[str] = set()
        self._seen: dict[str, int] = {}  # address -> processes that have had it
        authority, certificate, key = wanted.tls
        security = None
        if any(wanted.tls):
            security = distributed.Security(
                tls_ca_file=authority or None, tls_client_cert=certificate or None, tls_client_key=key or None,
                require_encryption=True,
            )  # fmt: skip
        address = wanted.address if cluster is None else cluster
        # Dask logs each try of its own to reconnect.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        try:
            self._client = distributed.Client(
                address, timeout=wanted.connect_s, security=security, set_as_default=False, name="tilesmith"
            )
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise FleetError(
                f"no scheduler answers at {wanted.address} within {wanted.connect_s:.0f} s ({reason}); "
                "start one with `dask scheduler`, and name its address"
            ) from None
        self._client.subscribe_topic(self._topic, self._told)

    @property
    def dashboard(self) -> str:
        """The address of Dask's own page; empty for a cluster that ends with this client."""
        return str(self._client.dashboard_link or "") if self._cluster is None else ""

    def places(self) -> tuple[Place, ...]:
        """As ``Executor``. Raises ``FleetError`` if the scheduler has gone."""
        try:
            told = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_S)
            here = {
                address: str(each.get("local_directory", ""))
                for address, each in told["workers"].items()
                if each.get("status", "running") == "running"
            }
        except (OSError, TimeoutError, RuntimeError, TypeError, AttributeError, KeyError, ValueError) as error:
            raise FleetError(
                f"the scheduler at {self._wanted.address} does not answer any more ({error or type(error).__name__}); "
                "the same command goes on from here"
            ) from None
        for name, worker in list(self._workers.items()):
            if here.get(worker.address) != worker.folder or name in self._dropped:
                self._lose(name)
        known = {worker.address for worker in self._workers.values()}
        for address, folder in here.items():
            if address not in known:
                self._ask(address, folder)
        for worker in self._workers.values():
            self._hear(worker)
        return tuple(worker.place for worker in self._workers.values() if worker.place is not None)

    def begin(self, place: Place, task: str, payload: bytes) -> None:
        worker = self._workers.get(place.name)
        if worker is None:  # it has gone meanwhile, which ``places`` tells
            return
        future = self._client.submit(
            on_worker, self._wanted.run, place.device, payload, task, self._topic, key=f"tilesmith-{uuid.uuid4().hex}",
            workers=[worker.address], allow_other_workers=False, pure=False,
        )  # fmt: skip
        with self._lock:
            self._futures[task] = (place.name, future)
        future.add_done_callback(lambda done: self._done(task, done))

    def wait(self, seconds: float) -> tuple[Event, ...]:
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._events.get(timeout=seconds))
            while True:
                found.append(self._events.get_nowait())
        return tuple(found)

    def drop(self, place: Place) -> None:
        worker = self._workers.get(place.name)
        if worker is None:
            return
        self._dropped.add(place.name)
        threading.Thread(target=self._restart, args=(worker.address,), daemon=True).start()

    def close(self) -> None:
        with self._lock:
            futures, self._futures = self._futures, {}
        with contextlib.suppress(Exception):  # a scheduler that has gone must not hide what is being raised
            for _, future in futures.values():
                future.cancel()
        with contextlib.suppress(Exception):
            self._client.close(timeout=CLOSE_S)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=CLOSE_S)

    # --- workers --------------------------------------------------------------------------------------------------

    def _ask(self, address: str, folder: str) -> None:
        """Let a new worker say what it is."""
        self._seen[address] = count = self._seen.get(address, 0) + 1
        name = address if count == 1 else f"{address}#{count}"
        asked = self._client.submit(
            self._wanted.look, self._wanted.device, self._wanted.threads, workers=[address], pure=False,
            allow_other_workers=False, key=f"tilesmith-look-{uuid.uuid4().hex}",
        )  # fmt: skip
        self._workers[name] = _Worker(name, address, folder, asked)

    def _hear(self, worker: _Worker) -> None:
        """Take the answer of a new worker, if it has come."""
        if worker.asked is None or not worker.asked.done():
            return
        asked, worker.asked = worker.asked, None
        try:
            found = read_survey(asked.result(timeout=FETCH_S), self._wanted.family)
        except Exception as error:  # whatever a foreign machine's Python raises
            _log.warning("worker %s cannot be used: %s", worker.address, " ".join(str(error).split())[:500])
            return
        worker.place = Place(worker.name, found.host, found.device, found.target)

    def _lose(self, name: str) -> None:
        del self._workers[name]
        with self._lock:
            gone = [task for task, (worker, _) in self._futures.items() if worker == name]
            futures = [self._futures.pop(task)[1] for task in gone]
        for future in futures:  # it would wait for a worker of this address for ever
            with contextlib.suppress(Exception):
                future.cancel()

    def _restart(self, address: str) -> None:
        """End a worker's process; its nanny starts another one."""
        with contextlib.suppress(Exception):
            try:
                self._client.restart_workers([address], timeout=CLOSE_S, raise_for_error=False)
            except ValueError:  # no nanny
                self._client.retire_workers([address], close_workers=True)

    # --- what comes back, in Dask's threads -----------------------------------------------------------------------

    def _told(self, event: Any) -> None:
        message = event[1]
        if isinstance(message, dict) and isinstance(message.get("payload"), bytes):
            self._events.put(Told(str(message.get("task")), message["payload"]))

    def _done(self, task: str, future: Any) -> None:
        with self._lock:
            known = self._futures.pop(task, None)
        if known is None:
            return
        payload, reason = b"", ""
        try:
            if future.status == "finished":
                payload = future.result(timeout=FETCH_S)
                if not isinstance(payload, bytes):
                    payload, reason = b"", f"its reply is {type(payload).__name__}, not bytes"
            elif future.status == "error":
                error = future.exception(timeout=FETCH_S)
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
            else:
                reason = f"the scheduler says: {future.status}"
        except Exception as error:
            reason = f"its reply did not come: {error or type(error).__name__}"
        self._events.put(Replied(task, payload, reason))

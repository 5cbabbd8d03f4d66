"""An executor whose workers are threads of the test, and workers that misbehave as they are told."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from simulated_search import TARGET, search

from tilesmith.fleet.executor import Event, Place, Replied, Told
from tilesmith.fleet.worker import run_with


def simulated(device, payload, tell):
    return run_with(search, device, payload, tell)


class ThreadExecutor:
    """``behaviour(place, run)`` takes the place of ``run`` on a worker; an exception in it loses the worker."""

    ahead = False

    def __init__(self, *names: str, behaviour: Callable | None = None, hosts: dict[str, str] | None = None) -> None:
        hosts = hosts or {}
        self.here = {name: Place(name, hosts.get(name, "here"), name, TARGET) for name in names}
        self.behaviour = behaviour or (lambda place, payload, tell: simulated(place.device, payload, tell))
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.begun: list[tuple[str, str]] = []
        self.dropped: list[str] = []

    def places(self):
        return tuple(self.here.values())

    def begin(self, place, task, payload):
        self.begun.append((place.name, task))
        threading.Thread(target=self._work, args=(place, task, payload), daemon=True).start()

    def _work(self, place, task, payload):
        try:
            reply = self.behaviour(place, payload, lambda told: self.events.put(Told(task, told)))
        except Exception:
            self.here.pop(place.name, None)
            return
        self.events.put(Replied(task, reply))

    def wait(self, seconds):
        found, ends = [], time.monotonic() + min(seconds, 0.05)
        while not found and time.monotonic() < ends:
            try:
                found.append(self.events.get(timeout=0.02))
            except queue.Empty:
                continue
        return tuple(found)

    def drop(self, place):
        self.dropped.append(place.name)
        self.here.pop(place.name, None)

    def close(self):
        self.here.clear()

"""A list of independent tasks on every GPU of this machine, in the order of the list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tilesmith.fleet.device_lock import device_lock
from tilesmith.fleet.executor import Place, Run, Tell, Wanted
from tilesmith.fleet.processes import LocalProcesses, all_gpus
from tilesmith.fleet.spread import Failed, Finished, Job, Spread


def on_every_gpu(
    run: Run, payloads: Sequence[bytes], limit_s: float, threads: int | None = None, each_target: bool = False
) -> Iterator[tuple[int, bytes, str]]:
    """Run each payload on one GPU, or (``each_target``) on one GPU of each target.

    Yields the index of the payload, the reply, and (empty otherwise) why there is none: in the list's order, each as
    soon as all before it are done. ``limit_s`` is the time after which a GPU's worker counts as hanging. Raises
    ``LaunchError`` without a driver and ``FleetError`` without a GPU.
    """
    executor = LocalProcesses(all_gpus(), Wanted("", partial(alone, run), "cuda", threads))
    try:
        spread = Spread(executor)
        targets = sorted({place.target for place in spread.look()}) if each_target else [""]
        names = {f"{index} {target}": index for index in range(len(payloads)) for target in targets}
        for name, index in names.items():
            spread.add(Job(name, partial(_given, payloads[index]), name.partition(" ")[2], limit_s))
        done: dict[str, tuple[bytes, str]] = {}
        waiting = list(names)
        for outcomes in spread.run():
            for outcome in outcomes:
                if isinstance(outcome, Finished):
                    done[outcome.job.name] = (outcome.payload, "")
                elif isinstance(outcome, Failed):
                    done[outcome.job.name] = (b"", outcome.reason)
            while waiting and waiting[0] in done:
                name = waiting.pop(0)
                yield (names[name], *done.pop(name))
    finally:
        executor.close()


def alone(run: Run, device: str, payload: bytes, tell: Tell) -> bytes:
    """Run a task while no other worker of this machine measures on the device."""
    with device_lock(device):
        return run(device, payload, tell)


def _given(payload: bytes, place: Place) -> bytes:
    return payload

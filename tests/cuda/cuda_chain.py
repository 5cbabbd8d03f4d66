"""From drafts to executables for the stand-in, through NVRTC, the plan's bytes and the C runtime."""

from __future__ import annotations

import tempfile

from stand_in import StandIn

from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.executable import Executable
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.cache import ArtifactCache

H200 = CUDA_TARGETS["sm_90a"]
_folder = tempfile.TemporaryDirectory(prefix="tilesmith-test-")  # goes when the process ends
CACHE = ArtifactCache(_folder.name)


def executable(signature: Signature, draft: Draft, emulator: StandIn | None = None, target=H200) -> Executable:
    made = [CACHE.get_or_build(source, target) for source in draft.sources]
    for source in draft.sources if emulator else ():
        emulator.emulate(source)
    paths = {artifact.digest: artifact.path for artifact in made}
    plan = assemble(draft, signature, "test", "", target, [artifact.digest for artifact in made])
    return Executable(plan, [paths[digest] for digest in plan.artifacts])

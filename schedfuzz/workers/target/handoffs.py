"""Nouns: handoffs: the sending side of a KV connector's worker.

A finished request's blocks are read when they are handed over and again when they were sent, at the
last moment: who gives them away too early is seen by what they hold then.
"""

from schedfuzz.workers.target import checks
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.transfers import Contents, Handoff, slots


class Handoffs:
    """The handoffs of one engine; `pending` are those not yet sent, with the clock of their end."""

    def __init__(self, runner: SimulatedRunner, known: Contents) -> None:
        self.runner = runner
        self.known = known
        self.size = runner.engine.block_size
        self.pending: dict[str, tuple[Handoff, int]] = {}

    def take(self, handoff: Handoff, clock: int) -> None:
        """Take over a finished request's blocks. Raises BrokenRule."""
        for index, _ in self.runner.kv.attention:
            self._check_count(handoff, len(handoff.tables[index]))
        if handoff.kept:
            script = self.runner.requests[handoff.request].external
            assert script is not None
            self._check_content(handoff, "when they were handed off")
            self.pending[handoff.request] = (handoff, clock + script.send_steps)
            self.runner.happened.append(f"send {handoff.request}")

    def complete(self, clock: int) -> set[str]:
        """End the sends that are due; return their requests. Raises BrokenRule."""
        ended = [handoff for handoff, due in self.pending.values() if due <= clock]
        for handoff in ended:
            self._check_content(handoff, "when they were sent")
            del self.pending[handoff.request]
            self.runner.happened.append(f"send {handoff.request} complete")
        return {handoff.request for handoff in ended}

    def _check_count(self, handoff: Handoff, blocks: int) -> None:
        most = -(-handoff.computed // self.size)
        # The last token was sampled, not computed; a step in flight may have computed it since.
        sure = handoff.tokens - 1 if handoff.kept else 0
        least = -(-sure // self.size)
        if not least <= blocks <= most:
            detail = f"{blocks} blocks for {handoff.computed} computed tokens"
            if blocks < least:
                detail += f", {least} are needed for its {handoff.tokens} tokens"
            checks.blame(self.runner, "handoff-blocks", detail, int(handoff.request))

    def _check_content(self, handoff: Handoff, when: str) -> None:
        digests = self.known.digests(handoff.request)
        sure = min(handoff.computed, handoff.tokens - 1)
        for position, slot in slots(self.runner.kv, handoff.tables, 0, sure, sure):
            if slot != digests[position]:
                detail = f"position {position} of its blocks held other content {when}"
                checks.blame(self.runner, "handoff-content", detail, int(handoff.request))

"""Nouns: encoder, encoder cache, cross attention.

The runner's side of images: the encoder runs for the inputs that the scheduler names and its
outputs stay until the scheduler frees them, so a placeholder without its output shows that a
request was scheduled too early or an output given up too soon.
"""

from typing import Any

from schedfuzz.corpus.parts import Image
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.trace import Violation
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.cross import CrossKV
from schedfuzz.workers.target.ec_source import Source
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.seam_encoder import identifier, install, tells_of_frees
from schedfuzz.workers.target.state import State


class Encoder(Part):
    """The encoder of a decoder model: its outputs replace the placeholders of the prompt."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self.runner = runner
        self.engine = runner.engine
        self.cache: dict[str, int] = {}  # picture -> its encoder tokens
        self.reached: dict[str, int] = {}  # request -> the end of its last share
        self.source = Source(runner) if self.engine.ec_connector else None
        self.doubt: Violation | None = None

    def join(self, core: Any) -> None:
        self.scheduler = core.scheduler
        self.books = install(self.engine, self.scheduler)
        if self.source is not None:
            self.scheduler.ec_connector.source = self.source

    def begin(self, output: Any) -> None:
        for name in output.free_encoder_mm_hashes:
            self.cache.pop(name, None)
        if self.source is not None:
            self.cache |= output.ec_connector_metadata.loads
        used = 0
        for req_id, indices in output.scheduled_encoder_inputs.items():
            state = checks.known(self.runner, req_id)
            for index in indices:
                image = state.request.images[index]
                used += image.length
                self.run(state, image)
        if used > self.engine.max_num_encoder_input_tokens:
            limit = self.engine.max_num_encoder_input_tokens
            checks.fail(self.runner, "encoder-budget", f"{used} encoder tokens > {limit}")
        self.check_size()

    def run(self, state: State, image: Image) -> None:
        """Run the encoder; a picture whose embeddings come from outside has nothing to run on."""
        if image.delay is None:
            self.cache[identifier(image)] = image.length

    def check_size(self) -> None:
        """Check that the outputs at hand fit. Raises BrokenRule."""
        total, limit = sum(self.cache.values()), self.engine.encoder_cache_size
        if total > limit:
            detail = f"{total} encoder tokens in a cache of {limit}"
            checks.fail(self.runner, "encoder-cache", detail)

    def attend(self, state: State, start: int, end: int) -> None:
        self.reached[str(state.number)] = end
        for image in state.request.images:
            name = identifier(image)
            read = image.offset < end and start < image.offset + image.length
            if read and name not in self.cache:
                detail = f"positions {start}..{end - 1} need {name} (at {image.offset})"
                checks.fail(self.runner, "encoder-missing", detail, state)

    def reset_encoder_cache(self) -> None:
        self.cache.clear()

    # -- the manager's books, between two steps --------------------------------------------------

    def settled(self) -> None:
        if self.doubt is None:
            self.doubt = self.wrong_count() or self.dropped() or self.untold()

    def wrong_count(self) -> Violation | None:
        """Return that a count of free slots left its bounds."""
        for free in self.books.free():
            if not 0 <= free <= self.engine.encoder_cache_size:
                detail = f"{free} slots free of {self.engine.encoder_cache_size}"
                return violation("encoder-slots", detail, self.runner.step)
        return None

    def dropped(self) -> Violation | None:
        """Return that a running request gave up an output that it has read only in part.

        A request that was set back, and has not run since, will ask for it again.
        """
        for request in self.scheduler.running:
            end = self.reached.get(request.request_id, 0)
            if not request.mm_features or request.num_computed_tokens < end:
                continue
            for image in self.runner.requests[request.request_id].images:
                inside = image.offset < end < image.offset + image.length
                if inside and not self.books.holds(request.request_id, identifier(image)):
                    detail = (
                        f"it read {end - image.offset} of {identifier(image)} and holds it no more"
                    )
                    number = int(request.request_id)
                    return violation("encoder-held", detail, self.runner.step, number, "running")
        return None

    def untold(self) -> Violation | None:
        """Return that the EC connector was not told what a running request gave up.

        Preemption gives up all without a word.
        """
        if self.source is None or not tells_of_frees():
            return None
        running = {r.request_id for r in self.scheduler.running if not r.num_preemptions}
        for req_id, name in sorted(self.source.holders):
            if req_id in running and not self.books.holds(req_id, name):
                detail = f"it holds {name} no more, of which the connector was told nothing"
                return violation("ec-freed", detail, self.runner.step, int(req_id), "running")
        return None

    def holds_back(self, request: Any) -> bool:
        """Return whether a picture may have to wait: for its encoder, or for an undivided share."""
        if not request.mm_features:
            return False
        busy = self.engine.disable_chunked_mm_input or self.runner.output.scheduled_encoder_inputs
        return bool(busy) or self.books.free()[-1] < self.engine.encoder_cache_size

    def may_fail(self, number: int) -> bool:
        """Return whether a picture of the request has a name that another picture has too.

        Releases from 0.31 on answer a name that was used for another length with an error.
        """
        images = [i for request in self.runner.requests.values() for i in request.images]
        mine = self.runner.requests[str(number)].images
        return any(
            i.name is not None and any(i.name == j.name and i.length != j.length for j in images)
            for i in mine
        )

    def awaited(self) -> bool:
        return self.source is not None and self.source.awaited()

    def left(self) -> Violation | None:
        """Return what is held for nobody, else what was wrong with the books on the way.

        Wrong books come last: most of them only cost time, and must not hide what they lead to.
        """
        held = self.books.held()
        if held:
            return violation("encoder-left", f"{held[0]} is held at the end", self.runner.step)
        return self.doubt


class CrossEncoder(Encoder):
    """The encoder of an encoder-decoder model: its output goes into KV of its own at once."""

    def begin(self, output: Any) -> None:
        self.kv.fresh = set()
        super().begin(output)

    @property
    def kv(self) -> CrossKV:
        return next(group for group in self.runner.kv.groups if isinstance(group, CrossKV))

    def run(self, state: State, image: Image) -> None:
        self.kv.fresh.add(state.number)

    def check_size(self) -> None:
        pass  # nothing is kept

    def attend(self, state: State, start: int, end: int) -> None:
        pass  # its KV says more

    def dropped(self) -> Violation | None:
        return None

    def holds_back(self, request: Any) -> bool:
        return True

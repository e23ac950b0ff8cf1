"""Nouns: offload part, job, host block.

The worker's half of vLLM's own CPU offloading connector. A store reads its GPU blocks at the last
moment it may, when it is reported or when a step waits for it, and a load shows its blocks from the
first moment: both orders are allowed to a real worker, so a block given away too early is seen.
"""

from typing import Any, NamedTuple

from schedfuzz.workers.target import checks
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.runner import SimulatedRunner

Content = list[int] | None


class Job(NamedTuple):
    """A transfer between GPU blocks and host blocks; `content` is what the GPU blocks must hold."""

    request: str
    blocks: list[int]
    host: list[int]
    content: list[Content]
    due: int


class OffloadPart(Part):
    """Plays the transfers of one engine; `clock` counts executed steps."""

    def __init__(self, runner: SimulatedRunner) -> None:
        connector = runner.engine.connector
        assert connector is not None
        self.runner = runner
        self.load_steps = connector.load_steps
        self.store_steps = connector.store_steps
        self.clock = 0
        self.host: dict[int, Content] = {}
        self.loads: dict[int, Job] = {}
        self.stores: dict[int, Job] = {}
        self.done: list[int] = []
        self.news = -1

    def begin(self, output: Any) -> None:
        orders = output.kv_connector_metadata
        self.clock += 1
        waited = orders.jobs_to_flush or ()
        for number in waited:
            if number in orders.store_jobs:
                self._store(number, orders.store_jobs.pop(number))
            if number in self.stores:
                self._end_store(number)
        for number, order in orders.load_jobs.items():
            self._load(number, order)

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        for number, order in output.kv_connector_metadata.store_jobs.items():
            self._store(number, order)
        for number in [n for n, job in self.stores.items() if job.due <= self.clock]:
            self._end_store(number)
        received = set()
        for number in [n for n, job in self.loads.items() if job.due <= self.clock]:
            received.add(self.loads[number].request)
            self._end_load(number)
        return {"kv_connector_output": self._result(received)}

    def awaited(self) -> bool:
        # What is reported in a step is taken in with the next one or, async, the one after it.
        return bool(self.loads or self.stores) or self.clock - self.news <= 1

    # -- jobs ------------------------------------------------------------------------------------

    def _job(self, order: Any, is_load: bool) -> tuple[list[int], list[int]]:
        """Return the GPU blocks and the host blocks of an order of either shape."""
        if hasattr(order, "transfer_spec"):
            source, target = order.transfer_spec
        else:
            source, target = order.src_spec, order.dst_spec
        device, host = (target, source) if is_load else (source, target)
        return [int(b) for b in device.block_ids], [int(b) for b in host.block_ids]

    def _load(self, number: int, order: Any) -> None:
        blocks, host = self._job(order, True)
        content = [self.host.get(block) for block in host]
        self._put(blocks, content)
        due = self.clock + self.load_steps
        self.loads[number] = Job(order.req_id, blocks, host, content, due)
        self._tell(f"load {order.req_id}: {len(blocks)} blocks")

    def _end_load(self, number: int) -> None:
        job = self.loads.pop(number)
        self._check(job, "load-overwritten", "loaded")
        self._report(number, f"load {job.request} complete")

    def _store(self, number: int, order: Any) -> None:
        blocks, host = self._job(order, False)
        due = self.clock + self.store_steps
        self.stores[number] = Job(order.req_id, blocks, host, self._held(blocks), due)
        self._tell(f"store {order.req_id}: {len(blocks)} blocks")

    def _end_store(self, number: int) -> None:
        job = self.stores.pop(number)
        self._check(job, "store-overwritten", "stored")
        for block, content in zip(job.host, job.content, strict=True):
            self.host[block] = content
        self._report(number, f"store {job.request} complete")

    def _check(self, job: Job, rule: str, how: str) -> None:
        for block, now, before in zip(job.blocks, self._held(job.blocks), job.content, strict=True):
            if now != before:
                detail = f"block {block} changed while it was {how}"
                checks.blame(self.runner, rule, detail, int(job.request))

    # -- GPU blocks of the one KV group -----------------------------------------------------------

    def _held(self, blocks: list[int]) -> list[Content]:
        _, group = self.runner.kv.attention[0]
        return [group.content(block) for block in blocks]

    def _put(self, blocks: list[int], contents: list[Content]) -> None:
        _, group = self.runner.kv.attention[0]
        for block, content in zip(blocks, contents, strict=True):
            if content is None:
                group.clear(block)
            else:
                group.put(block, list(content))

    # -- what the scheduler and the trace are told ------------------------------------------------

    def _report(self, number: int, what: str) -> None:
        self.done.append(number)
        self.news = self.clock
        self._tell(what)

    def _tell(self, what: str) -> None:
        self.runner.happened.append(what)

    def _result(self, received: set[str]) -> Any:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
            OffloadingWorkerMetadata,
        )
        from vllm.v1.outputs import KVConnectorOutput

        meta = None
        if self.done:
            workers = self.runner.engine.pipeline_parallel_size
            meta = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(self.done, workers))
            self.done = []
        return KVConnectorOutput(finished_recving=received, kv_connector_worker_meta=meta)

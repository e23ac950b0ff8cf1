"""Nouns: encoder seam, identifier, books.

How the releases take images. None of ours is a multimodal model, so that no processor is needed:
the encoder's manager and budget are put into the scheduler once it stands. `Books` is all that we
read of that manager.
"""

import functools
from typing import Any

from schedfuzz.corpus.parts import Image
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam


def identifier(image: Image) -> str:
    """Return the name under which vLLM caches the picture: the client's, else same for same."""
    if image.name is not None:
        return f"named-{image.name}"
    return f"picture-{image.item}-{image.length}"


def _arguments(engine: Engine) -> Arguments:
    return {"disable_chunked_mm_input": True} if engine.disable_chunked_mm_input else {}


def _finish(engine: Engine, config: Any) -> None:
    if engine.model != "encoder-decoder":
        return
    # What vLLM sets itself for such a model; cross attention's KV is sized by the second.
    config.scheduler_config.disable_chunked_mm_input = True
    config.scheduler_config.max_num_encoder_input_tokens = engine.max_num_encoder_input_tokens


def _features(engine: Engine, request: Request, arguments: Arguments) -> None:
    if not request.images:
        return
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    arguments["mm_features"] = [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=identifier(image),
            mm_position=PlaceholderRange(offset=image.offset, length=image.length),
        )
        for image in request.images
    ]


def _embeddings_from_outside(engine: Engine) -> Arguments:
    if not engine.ec_connector:
        return {}
    from vllm.config.ec_transfer import ECTransferConfig

    return {
        "ec_transfer_config": ECTransferConfig(
            ec_connector="ScriptedECConnector",
            ec_connector_module_path="schedfuzz.workers.target.ec_connector",
            ec_role="ec_consumer",
        )
    }


ENCODER_SEAMS: tuple[Seam, ...] = (
    Seam("disable_chunked_mm_input", _arguments, _finish),
    Seam("images", request=_features),
    Seam("ec_connector", _embeddings_from_outside),
)


@functools.cache
def tells_of_frees() -> bool:
    """Return whether the release tells an EC connector of encoder outputs that are given up."""
    from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase

    return hasattr(ECConnectorBase, "update_state_after_free")


def install(engine: Engine, scheduler: Any) -> "Books":
    """Give a scheduler without work the encoder that the engine asks for; return its books."""
    from vllm.v1.core import encoder_cache_manager as module

    both = engine.model == "encoder-decoder"
    kind = module.EncoderDecoderCacheManager if both else module.EncoderCacheManager
    scheduler.encoder_cache_manager = kind(cache_size=engine.encoder_cache_size)
    scheduler.max_num_encoder_input_tokens = engine.max_num_encoder_input_tokens
    scheduler.is_encoder_decoder = both
    return Books(scheduler.encoder_cache_manager)


class Books:
    """What the encoder cache's manager says of itself; sizes in encoder tokens."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def free(self) -> tuple[int, ...]:
        """Return its counts of free and, for a cache that evicts, of freeable slots."""
        freeable = getattr(self.manager, "num_freeable_slots", None)
        return (self.manager.num_free_slots,) + (() if freeable is None else (freeable,))

    def holds(self, req_id: str, name: str) -> bool:
        """Return whether a request holds the encoder output with this name."""
        return req_id in self.manager.cached.get(name, ())

    def held(self) -> list[str]:
        """Return the names of all outputs that some request holds."""
        return [name for name, holders in getattr(self.manager, "cached", {}).items() if holders]

"""Nouns: making a runner: generation and parts, as a scenario's engine asks for them."""

from schedfuzz.corpus.outputs import turn_views
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.target.connector_part import ConnectorPart
from schedfuzz.workers.target.diffusion import DiffusionRunner
from schedfuzz.workers.target.encoder import CrossEncoder, Encoder
from schedfuzz.workers.target.logprobs import Logprobs, PromptLogprobs
from schedfuzz.workers.target.lora import Adapters
from schedfuzz.workers.target.offload_part import OffloadPart
from schedfuzz.workers.target.pooler import Pooler
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.runner_v1 import V1Runner
from schedfuzz.workers.target.runner_v2 import V2Runner
from schedfuzz.workers.target.sessions import Sessions
from schedfuzz.workers.target.structured import Structured


def make_runner(scenario: Scenario) -> SimulatedRunner:
    """Return the simulated runner for a scenario, with all its parts."""
    generation = V2Runner if scenario.engine.model_runner == "v2" else V1Runner
    if scenario.engine.model == "diffusion":
        generation = DiffusionRunner
    runner = generation(scenario.engine)
    runner.requests = {str(request.id): request for request in scenario.requests}
    runner.sessions = Sessions(runner.requests, scenario.engine.max_model_len)
    if scenario.engine.encoder_cache_size:
        both = scenario.engine.model == "encoder-decoder"
        runner.parts.append(CrossEncoder(runner) if both else Encoder(runner))
    if scenario.engine.max_loras:
        runner.parts.append(Adapters(runner))
    if scenario.engine.connector is not None:
        scripted = scenario.engine.connector.kind == "scripted"
        runner.parts.append(ConnectorPart(runner) if scripted else OffloadPart(runner))
    if any(request.structured is not None for request in scenario.requests):
        runner.parts.append(Structured(runner))
    if any(view.logprobs for request in scenario.requests for view in turn_views(request)):
        runner.parts.append(Logprobs(runner))
    if any(request.prompt_logprobs for request in scenario.requests):
        runner.parts.append(PromptLogprobs(runner))
    if scenario.engine.model == "pooling":
        runner.parts.append(Pooler())
    return runner

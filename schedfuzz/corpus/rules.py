"""Nouns: rule.

Every rule holds for every correct release; breaking one is a violation. A fatal one ends the run
where it broke; a survivable one is recorded and the run goes on, to show what it leads to.
"""

from schedfuzz.corpus.trace import Kind, Violation

# rule -> (kind, one sentence)
RULES: dict[str, tuple[Kind, str]] = {
    "runner-context": (
        "corruption",
        "the real runner reads a request's own content from the KV cache at every position",
    ),
    "runner-control": (
        "corruption",
        "an ordinary model on the real runner gives the hidden states of the tokens it has read",
    ),
    "runner-output": (
        "corruption",
        "the real runner yields what its model says for the scheduled input",
    ),
    "runner-logprobs": (
        "corruption",
        "the real runner tells each token the logprobs of its own position",
    ),
    "encoder-budget": (
        "contract",
        "a step's encoder inputs stay within max_num_encoder_input_tokens",
    ),
    "encoder-cache": (
        "contract",
        "the encoder outputs that the runner keeps stay within encoder_cache_size",
    ),
    "encoder-missing": ("contract", "every placeholder of a step has its encoder output at hand"),
    "encoder-slots": (
        "contract",
        "the encoder cache counts from 0 to encoder_cache_size slots as free",
    ),
    "encoder-held": (
        "contract",
        "a request holds the encoder output that it has read only in part",
    ),
    "ec-freed": (
        "contract",
        "the EC connector is told which encoder output a running request gives up",
    ),
    "encoder-left": ("leak", "when all requests are gone none holds an encoder output"),
    "lora-limit": ("contract", "a step's requests use at most max_loras adapters"),
    "nonpositive-tokens": ("contract", "a scheduled request gets at least one token"),
    "past-max-model-len": (
        "contract",
        "a step leaves room for its sampled token: computed + scheduled + 1 <= max_model_len",
    ),
    "sampled-past-max-model-len": (
        "contract",
        "the tokens of a request, with those just sampled, never exceed max_model_len",
    ),
    "token-budget": ("contract", "a step's tokens stay within max_num_batched_tokens"),
    "token-total": ("contract", "the step's total is the sum of its requests' tokens"),
    "seats": ("contract", "a step holds at most max_num_seqs requests"),
    "draft-slots": (
        "contract",
        "a step's tokens and what its drafter adds for each request fit max_num_batched_tokens",
    ),
    "draft-lookahead": (
        "contract",
        "the block table covers the positions that the drafter writes after the step",
    ),
    "running-skipped": (
        "starvation",
        "a running request that could go on gets tokens when a later one does",
    ),
    "admission-order": (
        "starvation",
        "no request is admitted while one that stands before it by policy is left waiting",
    ),
    "draft-width": ("contract", "a request gets at most num_speculative_tokens drafts"),
    "unknown-request": ("contract", "only requests that the runner knows are scheduled"),
    "resumed-in-full": ("contract", "a resumed request brings its whole block table"),
    "resumed-tokens": ("contract", "a request that re-enters brings the tokens it has so far"),
    "unknown-input": ("contract", "every non-draft input token is known when the step runs"),
    "misplaced-sample": ("contract", "the last non-draft token of a sampling step is the newest"),
    "computed-behind": ("contract", "the scheduler never counts less computed than the runner"),
    "block-table": ("contract", "the block table covers the step's tokens with real blocks"),
    "block-copy": (
        "contract",
        "a block copy goes from a written block to a real one that no other copy touches",
    ),
    "block-zeroed": (
        "contract",
        "a block that held a recurrent state is zeroed before attention fills a part of it",
    ),
    "common-prefix": ("contract", "the blocks reported as common are those of every request"),
    "canvas": (
        "contract",
        "after its prompt a diffusion request is scheduled for exactly one canvas, never before",
    ),
    "grammar-rows": (
        "contract",
        "a grammar bitmask has one row for each token that its requests may sample",
    ),
    "grammar": (
        "corruption",
        "what a structured request delivers after its reasoning is what its grammar allows",
    ),
    "grammar-state": (
        "corruption",
        "a grammar has been fed exactly the tokens that its request delivered",
    ),
    "kv-content": ("corruption", "every position a request attends to holds its own content"),
    "load-blocks": ("contract", "an async KV load gets exactly the blocks of its tokens"),
    "load-announced": (
        "contract",
        "a step whose requests need KV that is loaded within it says so",
    ),
    "load-zeroed": ("contract", "a block is not zeroed while KV is loaded into it"),
    "load-into-used-block": (
        "contract",
        "no async KV load goes into a block that a step in flight still uses",
    ),
    "store-overwritten": (
        "corruption",
        "a block that is being offloaded is not written to before that is done or waited for",
    ),
    "load-overwritten": ("corruption", "a block holds what is loaded into it until that is done"),
    "failed-load-delivered": (
        "corruption",
        "no token computed from KV that failed to load reaches a client",
    ),
    "handoff-blocks": (
        "contract",
        "the blocks handed to the KV connector at the end are exactly those of computed tokens",
    ),
    "handoff-content": (
        "corruption",
        "blocks handed to the KV connector hold the request's content until they were sent",
    ),
    "output": ("corruption", "a request's output does not depend on the schedule"),
    "session-prompt": (
        "corruption",
        "a session's next turn continues its prompt and output, less the last token",
    ),
    "turn-length": ("corruption", "each turn of a session ends by its own max_tokens and stop"),
    "finish-reason": (
        "corruption",
        "a request ends by stop after its stop token, by repetition where it loops, else by length",
    ),
    "logprobs": ("corruption", "a turn's tokens bring their own logprobs exactly when it asked"),
    "prompt-logprobs": (
        "corruption",
        "a prompt's logprobs come once, with its first output, a row a token but the first",
    ),
    "pooled": ("corruption", "a pooling request is answered for exactly its own prompt"),
    "blocks-left": ("leak", "when all requests are gone every KV block is free"),
    "requests-left": ("leak", "when all requests are gone the scheduler holds none"),
    "deadlock": ("starvation", "something is scheduled while a request is unfinished"),
    "livelock": ("starvation", "scheduling work leads to output within a bound"),
    "passed-over": (
        "starvation",
        "the head of the queue is admitted when seat, budget and blocks are free",
    ),
    "cpu-limit": ("hang", "one scenario ends within its CPU time"),
}


def violation(
    rule: str, detail: str, step: int, request: int | None = None, path: str = ""
) -> Violation:
    """Return the violation of a named rule at an engine step."""
    return Violation(RULES[rule][0], rule, detail, step, request, path)

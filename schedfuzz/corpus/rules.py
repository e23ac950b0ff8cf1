"""Nouns: rule.

Every rule holds for every correct release; breaking one is a violation. A fatal one ends the run
where it broke; a survivable one is recorded and the run goes on, to show what it leads to.
"""

from schedfuzz.corpus.trace import Kind, Violation

# rule -> (kind, one sentence)
RULES: dict[str, tuple[Kind, str]] = {
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
    "draft-width": ("contract", "a request gets at most num_speculative_tokens drafts"),
    "unknown-request": ("contract", "only requests that the runner knows are scheduled"),
    "resumed-in-full": ("contract", "a resumed request brings its whole block table"),
    "resumed-tokens": ("contract", "a request that re-enters brings the tokens it has so far"),
    "unknown-input": ("contract", "every non-draft input token is known when the step runs"),
    "misplaced-sample": ("contract", "the last non-draft token of a sampling step is the newest"),
    "computed-behind": ("contract", "the scheduler never counts less computed than the runner"),
    "block-table": ("contract", "the block table covers the step's tokens with real blocks"),
    "kv-content": ("corruption", "every position a request attends to holds its own content"),
    "output": ("corruption", "a request's output does not depend on the schedule"),
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

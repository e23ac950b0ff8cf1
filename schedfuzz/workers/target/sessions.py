"""Nouns: session, turn, as a model runner sees them.

A session's next turn reaches the runner as a new request with a known id. Which turn it is, and
that its prompt is what the client was told and then sent, follows from the scenario alone.
"""

from typing import Any

from schedfuzz.corpus.outputs import Spoken, conversation, turn_views
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Request
from schedfuzz.workers.target.faults import BrokenRule


class Session:
    """One session: `views` are the request as each turn asks, `turn` the one that runs."""

    def __init__(self, request: Request, limit: int) -> None:
        self.views = turn_views(request)
        self.spoken: list[Spoken] = conversation(request, limit)
        self.turn = 0
        self.length = len(self.spoken[0].prompt)

    def enter(self, step: int, data: Any) -> Request:
        """Return the request as the turn asks that vLLM's NewRequestData starts or restarts.

        Raises BrokenRule when its prompt is not the session so far.
        """
        prompt = data.prompt_token_ids
        if len(prompt) != self.length:  # a preempted turn comes back with the prompt it had
            self.turn += 1
            self.length = len(prompt)
        if self.turn < len(self.spoken) and list(prompt) != self.spoken[self.turn].prompt:
            wanted = len(self.spoken[self.turn].prompt)
            detail = f"turn {self.turn} has a prompt of {len(prompt)} tokens, not its {wanted}"
            broken = violation("session-prompt", detail, step, self.views[0].id)
            raise BrokenRule(broken)
        return self.views[min(self.turn, len(self.views) - 1)]


class Sessions:
    """All sessions of a scenario."""

    def __init__(self, requests: dict[str, Request], limit: int) -> None:
        self._sessions = {
            req_id: Session(request, limit) for req_id, request in requests.items() if request.turns
        }

    def enter(self, step: int, data: Any) -> Request | None:
        """Return the request that vLLM's data is about, None if it is no session's.

        Raises BrokenRule, see `Session.enter`.
        """
        session = self._sessions.get(data.req_id)
        return None if session is None else session.enter(step, data)

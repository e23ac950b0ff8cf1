"""Nouns: delivery, its id, what it says.

Tells the channels about findings. A delivery cannot be exactly once over a network, so it is at
least once, under an id that stays the same: the receiver that remembers ids sees each finding once.
"""

import shlex
import time
from datetime import datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import msgspec

from schedfuzz.db import campaigns, notices, queries
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.db.notices import Claim
from schedfuzz.db.service_models import Campaign
from schedfuzz.service import sending
from schedfuzz.service.channels import Channels
from schedfuzz.service.logs import get
from schedfuzz.service.planning import spelled
from schedfuzz.service.sending import Message, NotDelivered

EVENT = "finding"
_TITLE = 1000  # characters; an environment is bounded


class Delivered(NamedTuple):
    """How many notices were sent, how many deliveries failed, how many notices wait now."""

    sent: int
    failed: int
    waiting: int


def deliver(store: Store, channels: Channels, now: datetime | None = None) -> Delivered:
    """Send the notices that are due, each channel's oldest first; return how that went.

    At most `channels.per_hour` per channel and hour, over all processes; what that holds back waits
    for a later call, and each notice that goes out says how many do. After a failure its channel
    has a rest until the next call. A process that dies between sending and storing that it has sent
    sends the notice again, with the same delivery id, when its claim has run out. `now` is for
    tests (default: the database's clock). Raises InfraError when the database fails.
    """
    sent = failed = 0
    for name in channels.names:
        while claim := notices.claim(store, name, channels.per_hour, now):
            finding = queries.get_finding(store, claim.finding_id)
            campaign = campaigns.by_id(store, claim.campaign_id)
            log = get().bind(
                notice=claim.notice_id, finding=finding.id, campaign=campaign.name, channel=name
            )
            try:
                _send(channels, name, message(claim, finding, campaign))
            except NotDelivered as error:
                notices.failed(store, claim.notice_id, str(error), now)
                log.warning("notice not delivered", error=str(error), attempt=claim.attempt)
                failed += 1
                break
            notices.sent(store, claim.notice_id, now)
            log.info("notice delivered", attempt=claim.attempt)
            sent += 1
    return Delivered(sent, failed, notices.counts(store, channels.names)["waiting"])


def _send(channels: Channels, name: str, what: Message) -> None:
    if name == "command":
        sending.run(channels.command, what)
    elif channels.webhook_url:
        sending.post(channels.webhook_url, channels.secret, what, int(time.time()))


def message(claim: Claim, finding: Finding, campaign: Campaign) -> Message:
    """Return what a channel is told; the finding must be read with its scenarios."""
    delivery = delivery_id(claim, finding)
    text = _text(finding, campaign, claim.held_back)
    body: dict[str, Any] = {
        "event": EVENT,
        "delivery": delivery,
        "text": text,
        "campaign": {"id": campaign.id, "name": campaign.name, "canary": campaign.canary},
        "finding": queries.finding_as_json(finding),
        "export_path": finding.export_path,
        "commands": _commands(finding),
        "more_waiting": claim.held_back,
    }
    short = {
        "EVENT": EVENT, "DELIVERY": delivery, "CAMPAIGN": campaign.name,
        "FINDING": str(finding.id), "FINGERPRINT": finding.fingerprint,
        "VERDICT": finding.verdict, "KIND": finding.kind, "RULE": finding.rule,
        "BEFORE": finding.before, "AFTER": finding.after, "TITLE": finding.title[:_TITLE],
        "TEXT": text[: 2 * _TITLE],
    }  # fmt: skip
    environment = {f"SCHEDFUZZ_{name}": value for name, value in short.items()}
    return Message(delivery, EVENT, msgspec.json.encode(body), environment)


def delivery_id(claim: Claim, finding: Finding) -> str:
    """Return a UUID that is the same at each attempt, and another one in any other database."""
    parts = (
        str(claim.notice_id), claim.channel, claim.created_at.isoformat(), finding.before,
        finding.after, finding.fingerprint,
    )  # fmt: skip
    return str(uuid5(NAMESPACE_URL, "\n".join(parts)))


def _text(finding: Finding, campaign: Campaign, more: int) -> str:
    pair = f"{finding.before} -> {finding.after}"
    said = f"{finding.verdict}: {finding.title} ({pair}, campaign {campaign.name})"
    return f"{said}; and {more} more wait" if more else said


def _commands(finding: Finding) -> dict[str, str]:
    pair = " ".join(shlex.quote(spelled(name)) for name in (finding.before, finding.after))
    return {
        "show": f"schedfuzz show {finding.id}",
        "replay": f"schedfuzz replay {finding.id} {pair}",
        "export": f"schedfuzz export {finding.id} --out findings",
    }

"""What a caller does about each error of the gateway: for the Models page. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engines.vllm.notes import gettext_noop


@dataclass(frozen=True)
class Cure:
    """``status`` and ``code`` as the gateway answers; ``meaning`` and ``remedy`` are message ids."""

    status: int
    code: str
    meaning: str
    remedy: str


CURES = (
    Cure(
        401,
        "invalid_api_key",
        gettext_noop("The key is not known."),
        gettext_noop("Copy it again, without blanks and quotes around it, behind “Bearer ”."),
    ),
    Cure(
        401,
        "key_expired",
        gettext_noop("The key has expired."),
        gettext_noop("Ask an owner of your team for a later end or a new key."),
    ),
    Cure(
        401,
        "key_rotated",
        gettext_noop("The key was replaced."),
        gettext_noop("Use the new one that an owner of your team has."),
    ),
    Cure(
        401,
        "key_disabled",
        gettext_noop("The key is disabled for now."),
        gettext_noop("Ask an owner of your team."),
    ),
    Cure(
        401,
        "key_revoked",
        gettext_noop("The key was revoked for good."),
        gettext_noop("Ask an owner of your team for a new one."),
    ),
    Cure(
        403,
        "address_not_allowed",
        gettext_noop("The key may not be used from this address."),
        gettext_noop("Call from an allowed one, or have this one added to the key."),
    ),
    Cure(
        403,
        "model_not_allowed",
        gettext_noop("The key may not call this model."),
        gettext_noop("Use one of the models above, or have this one added to the key."),
    ),
    Cure(
        404,
        "model_not_found",
        gettext_noop("There is no model of this name."),
        gettext_noop("Compare the name with those above; the error lists what the key may call."),
    ),
    Cure(
        400,
        "context_length_exceeded",
        gettext_noop("Prompt and answer together are longer than the model takes."),
        gettext_noop("Lower max_tokens, or shorten the prompt."),
    ),
    Cure(
        413,
        "body_too_large",
        gettext_noop("The request is larger than the gateway takes."),
        gettext_noop("Send fewer or smaller images or files."),
    ),
    Cure(
        429,
        "rate_limit_exceeded",
        gettext_noop("A limit of the key is used up; the message says which."),
        gettext_noop("Wait as long as “retry-after” says; SDKs do so by themselves."),
    ),
    Cure(
        400,
        "max_tokens_too_large",
        gettext_noop("More tokens are asked for than this model's route allows; the message names both."),
        gettext_noop("Lower max_tokens."),
    ),
    Cure(
        503,
        "route_disabled",
        gettext_noop("Operators have switched the model off."),
        gettext_noop("Use another model, or ask them."),
    ),
    Cure(
        503,
        "no_target_available",
        gettext_noop("No engine of this model answers now."),
        gettext_noop("Try again after “retry-after”; if it lasts, tell the operators the request id."),
    ),
    Cure(
        503,
        "gateway_not_ready",
        gettext_noop("The gateway has only just started, or has lost its database."),
        gettext_noop("Try again in a moment."),
    ),
    Cure(
        502,
        "upstream_cut",
        gettext_noop("The engine broke off in the middle of the answer."),
        gettext_noop("Send the request again."),
    ),
    Cure(
        504,
        "upstream_…_timeout",
        gettext_noop("The engine took too long to connect, to begin, to go on or to end."),
        gettext_noop("Stream the answer, ask for fewer tokens, or try again later."),
    ),
)

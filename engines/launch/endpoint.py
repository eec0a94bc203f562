"""An engine's HTTP side, asked from where the poller and the gateway are."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx

from engines.metrics.parse import MalformedPage, parse_page


@dataclass(frozen=True)
class Answer:
    """``status`` is None when nobody answered; ``error`` then says why in one word or two."""

    status: int | None
    error: str = ""


@dataclass
class Models:
    status: int | None
    names: list[str] = field(default_factory=list)
    max_model_len: int | None = None


class Endpoint:
    """``base_url`` without /v1. Calls never raise for what the network does."""

    def __init__(self, base_url: str, api_key: str = "", *, timeout_s: float = 5):
        self.base_url = base_url
        self._key = api_key
        self._timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, 3))

    def _request(
        self, method: str, path: str, *, key: bool = False, body: dict | None = None
    ) -> httpx.Response | str:
        headers = {"Authorization": f"Bearer {self._key}"} if key and self._key else {}
        try:
            with httpx.Client(timeout=self._timeout, trust_env=False) as client:
                return client.request(method, self.base_url + path, headers=headers, json=body)
        except httpx.ConnectTimeout:
            return "connect timeout"
        except httpx.ConnectError:
            return "refused"
        except httpx.TimeoutException:
            return "timeout"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return type(error).__name__

    def health(self) -> Answer:
        answer = self._request("GET", "/health")
        return Answer(None, answer) if isinstance(answer, str) else Answer(answer.status_code)

    def models(self) -> Models:
        answer = self._request("GET", "/v1/models", key=True)
        if isinstance(answer, str):
            return Models(None)
        if answer.status_code != 200:
            return Models(answer.status_code)
        try:
            rows = [row for row in answer.json()["data"] if isinstance(row, dict)]
        except (ValueError, KeyError, TypeError):
            return Models(answer.status_code)
        lengths = [row["max_model_len"] for row in rows if isinstance(row.get("max_model_len"), int)]
        return Models(200, [str(row.get("id")) for row in rows], lengths[0] if lengths else None)

    def unfinished(self) -> int | None:
        """Requests running plus waiting by /metrics, over all engines behind it; None without a figure."""
        answer = self._request("GET", "/metrics")
        if isinstance(answer, str) or answer.status_code != 200:
            return None
        try:
            values = parse_page(answer.text, histograms=False).values
        except MalformedPage:
            return None
        counts = [values[name] for name in ("requests_running", "requests_waiting") if name in values]
        return int(sum(counts)) if counts else None

    def open_without_key(self, model: str) -> list[str]:
        """Paths that do work for a caller who has no key."""
        message = {"role": "user", "content": "."}
        tries = {
            "/v1/chat/completions": {"model": model, "messages": [message], "max_tokens": 1},
            "/invocations": {"model": model, "messages": [message], "max_tokens": 1},
            "/tokenize": {"model": model, "prompt": "."},
        }
        served = []
        for path, body in tries.items():
            answer = self._request("POST", path, body=body)
            if not isinstance(answer, str) and answer.status_code == 200:
                served.append(path)
        return served

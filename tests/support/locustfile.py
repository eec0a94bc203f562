"""What locust's users do: chats and streams, as a business's back end sends them.

    KVADMIN_KEY=sk-kv-... locust -f tests/support/locustfile.py --host http://127.0.0.1:8081 \
        --headless -u 8 -r 8 -t 10s --stop-timeout 60

KVADMIN_MODEL names the model. Each answer's request id goes into the file that KVADMIN_IDS names, with what
the caller was told of its tokens.
"""

import json
import os

from locust import FastHttpUser, between, task

MODEL = os.environ.get("KVADMIN_MODEL", "qwen3-8b-v1")
KEY = os.environ["KVADMIN_KEY"]
IDS = os.environ.get("KVADMIN_IDS", "")


def note(request_id: str, usage: dict) -> None:
    if IDS:
        with open(IDS, "a") as lines:  # noqa: PTH123 (as plain as it gets under gevent)
            lines.write(f"{request_id} {usage['prompt_tokens']} {usage['completion_tokens']}\n")


class Business(FastHttpUser):
    wait_time = between(0.01, 0.1)

    def ask(self, **fields):
        value = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Wann kommt mein Paket? 包裹 📦"}],
            "max_tokens": 8,
            **fields,
        }
        name = "stream" if "stream" in fields else "chat"
        return self.client.post(
            "/v1/chat/completions",
            json=value,
            headers={"authorization": f"Bearer {KEY}"},
            name=name,
            catch_response=True,
        )

    @task(2)
    def chat(self):
        with self.ask() as answer:
            if answer.status_code != 200:
                answer.failure(answer.text)
                return
            value = json.loads(answer.text)
            if value["model"] != MODEL:
                answer.failure(f"it says it is {value['model']}")
            note(answer.headers["x-request-id"], value["usage"])

    @task(1)
    def stream(self):
        with self.ask(stream=True, stream_options={"include_usage": True}) as answer:
            events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
            if answer.status_code != 200 or events[-1:] != ["[DONE]"]:
                answer.failure(answer.text)
                return
            note(answer.headers["x-request-id"], json.loads(events[-2])["usage"])

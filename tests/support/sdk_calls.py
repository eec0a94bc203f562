"""What the official SDKs make of the gateway. A script: it runs with the Python of a vLLM environment, which
has openai and anthropic. Usage: python sdk_calls.py URL KEY MODEL. Prints one JSON object.
"""

import json
import sys

import anthropic
import openai

URL, KEY, MODEL = sys.argv[1:4]
MESSAGES = [{"role": "user", "content": "Say something, 请说点什么 🙂"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
}
#: a model with random weights ends where it likes
ON = {"ignore_eos": True}
found = {}


def failure(call):
    """The exception's class, its code, and whether it has our id."""
    try:
        call()
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return [type(error).__name__, getattr(error, "code", None), bool(error.request_id)]
    return "no error"


client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, extra_body=ON)
found["chat"] = {
    "model": answer.model,
    "tokens": [answer.usage.prompt_tokens, answer.usage.completion_tokens],
    "id": bool(answer._request_id),
}
chunks = list(
    client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, stream=True, extra_body=ON)
)
found["stream"] = {
    "models": sorted({chunk.model for chunk in chunks}),
    "usage": [chunk.usage is not None for chunk in chunks if chunk.usage is not None],
    "finish": chunks[-1].choices[0].finish_reason,
}
chunks = list(
    client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
        n=2,
        logprobs=True,
        extra_body=ON,
    )
)
found["stream_usage"] = chunks[-1].usage.completion_tokens
answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, tools=[TOOL])
found["tools"] = answer.choices[0].finish_reason
answer = client.completions.create(model=MODEL, prompt="Once", max_tokens=5, extra_body=ON)
found["completions"] = answer.usage.completion_tokens
made = client.responses.create(model=MODEL, input="Once upon a time", max_output_tokens=16)
found["responses"] = {"model": made.model, "tokens": made.usage.output_tokens}
events = list(client.responses.create(model=MODEL, input="Once", max_output_tokens=16, stream=True))
found["responses_stream"] = [events[0].type, events[-1].type, events[-1].response.model]
found["models"] = [[model.id, model.max_model_len] for model in client.models.list()]
found["model"] = client.models.retrieve(MODEL).id
found["errors"] = {
    "embeddings": failure(lambda: client.embeddings.create(model=MODEL, input="a")),
    "too_long": failure(
        lambda: client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "word " * 3000}], max_tokens=8
        )
    ),
    "no_model": failure(lambda: client.chat.completions.create(model="none", messages=MESSAGES)),
    "bad_value": failure(
        lambda: client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=-5)
    ),
    "bad_key": failure(
        lambda: openai.OpenAI(base_url=URL + "/v1", api_key="sk-kv-x", max_retries=0).models.list()
    ),
}
claude = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
message = claude.messages.create(model=MODEL, messages=MESSAGES, max_tokens=8, extra_body=ON)
found["messages"] = {"model": message.model, "tokens": message.usage.output_tokens}
with claude.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=8, extra_body=ON) as stream:
    for _ in stream.text_stream:
        pass
    last = stream.get_final_message()
found["messages_stream"] = {"model": last.model, "tokens": last.usage.output_tokens}
found["count_tokens"] = claude.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens > 0
found["claude_models"] = [model.id for model in claude.models.list()]
found["claude_errors"] = {
    "no_model": failure(lambda: claude.messages.create(model="none", messages=MESSAGES, max_tokens=8)),
    "bad_key": failure(
        lambda: anthropic.Anthropic(base_url=URL, api_key="sk-kv-x", max_retries=0).messages.create(
            model=MODEL, messages=MESSAGES, max_tokens=8
        )
    ),
}
print(json.dumps(found))

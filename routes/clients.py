"""How each client is set up to call the gateway: texts to copy and paste. Pure.

Keys go into environment variables, never into code; only where a program has nothing but a form do they
stand in a value.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.vllm.notes import gettext_noop

#: what stands for a key that is not known here
PLACEHOLDER = "sk-kv-YOUR-KEY"
ENVIRONMENT = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Client:
    """One client. ``title`` and ``note`` are message ids unless the title is a name; ``blocks`` are texts to
    copy, each with its own heading (a message id).
    """

    id: str
    title: str
    blocks: tuple[tuple[str, str], ...]
    note: str = ""


_SHELL = gettext_noop("In a shell")
_ENVIRONMENT = gettext_noop("In the program's environment")
_PYTHON = "Python"
_FIELDS = gettext_noop("In its settings")


def _lines(*lines: str) -> str:
    return "\n".join(lines)


def clients(gateway: str, model: str, key: str = PLACEHOLDER) -> list[Client]:
    """``gateway`` is the gateway's address without /v1 and without a slash at its end."""
    base = f"{gateway}/v1"
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    curl = _lines(
        f"export {ENVIRONMENT}={key}",
        f"curl {base}/chat/completions \\",
        f'  -H "Authorization: Bearer ${ENVIRONMENT}" \\',
        '  -H "Content-Type: application/json" \\',
        f"  -d '{body}'",
    )
    openai = _lines(
        "from openai import OpenAI",
        "",
        "client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY",
        "answer = client.chat.completions.create(",
        f'    model="{model}",',
        '    messages=[{"role": "user", "content": "Hello"}],',
        ")",
        "print(answer.choices[0].message.content)",
    )
    langchain = _lines(
        "from langchain_openai import ChatOpenAI",
        "",
        f'model = ChatOpenAI(model="{model}", base_url="{base}")',
        'print(model.invoke("Hello").content)',
    )
    claude = _lines(
        f"export ANTHROPIC_BASE_URL={gateway}",
        f"export ANTHROPIC_AUTH_TOKEN={key}",
        f"export ANTHROPIC_MODEL={model}",
        f"export ANTHROPIC_SMALL_FAST_MODEL={model}",
        "claude",
    )
    return [
        Client("curl", "curl", ((_SHELL, curl),)),
        Client(
            "openai",
            gettext_noop("OpenAI Python SDK"),
            (
                (_ENVIRONMENT, _lines(f"OPENAI_BASE_URL={base}", f"OPENAI_API_KEY={key}")),
                (_PYTHON, openai),
            ),
            gettext_noop("The Node SDK reads the same two variables."),
        ),
        Client(
            "langchain",
            "LangChain",
            ((_ENVIRONMENT, f"OPENAI_API_KEY={key}"), (_PYTHON, langchain)),
        ),
        Client(
            "claude-code",
            "Claude Code",
            ((_SHELL, claude),),
            gettext_noop("Its base URL has no /v1. The model has to be able to call tools."),
        ),
        Client(
            "openai-compatible",
            gettext_noop("Another assistant with an OpenAI base URL"),
            ((_FIELDS, _lines(f"Base URL: {base}", f"API key: {key}", f"Model: {model}")),),
            gettext_noop(
                "Cline, Continue, Cursor, Open WebUI and others: choose “OpenAI compatible” as the provider."
            ),
        ),
        Client(
            "anthropic-compatible",
            gettext_noop("Another assistant with an Anthropic base URL"),
            ((_FIELDS, _lines(f"Base URL: {gateway}", f"API key: {key}", f"Model: {model}")),),
            gettext_noop("It sends the key as x-api-key, which the gateway takes, too."),
        ),
    ]

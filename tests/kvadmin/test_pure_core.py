"""Pure code imports no Django, no paramiko and no HTTP client, directly or through kvadmin's own modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kvadmin.env import BASE_DIR

BANNED = {
    "aiohttp",
    "allauth",
    "celery",
    "django",
    "httptools",
    "httpx",
    "kombu",
    "paramiko",
    "psycopg",
    "redis",
    "requests",
    "rest_framework",
    "socket",
    "subprocess",
    "urllib.request",
    "uvloop",
}

#: modules, and folders with every module in them
PURE = [
    "engines/charts/figure.py",
    "engines/discovery",
    "engines/launch/decide.py",
    "engines/launch/files.py",
    "engines/launch/preflight.py",
    "engines/launch/scan.py",
    "engines/launch/scripts",
    "engines/metrics/columns.py",
    "engines/metrics/names.py",
    "engines/metrics/parse.py",
    "engines/metrics/quantile.py",
    "engines/metrics/window.py",
    "engines/planner",
    "engines/probe",
    "engines/provision/facts.py",
    "engines/provision/judge.py",
    "engines/provision/pip_output.py",
    "engines/provision/scripts.py",
    "engines/provision/versions.py",
    "engines/ssh/command.py",
    "engines/ssh/parse.py",
    "engines/vllm",
    "kvadmin/forwarded.py",
    "kvadmin/serviceurls.py",
    "kvadmin/up/backoff.py",
    "kvadmin/up/plan.py",
    "routes/baseurl.py",
    "routes/serving.py",
    "routes/clients.py",
    "routes/errors.py",
    "routes/gateway/accounts.py",
    "routes/gateway/asked.py",
    "routes/gateway/choose.py",
    "routes/gateway/counts.py",
    "routes/gateway/credentials.py",
    "routes/gateway/decide.py",
    "routes/gateway/faults.py",
    "routes/gateway/forms.py",
    "routes/gateway/heads.py",
    "routes/gateway/health.py",
    "routes/gateway/jsonspans.py",
    "routes/gateway/local.py",
    "routes/gateway/packed.py",
    "routes/gateway/paths.py",
    "routes/gateway/renaming.py",
    "routes/gateway/responses.py",
    "routes/gateway/shares.py",
    "routes/gateway/snapshotrows.py",
    "routes/gateway/sse.py",
    "routes/gateway/usagelines.py",
    "routes/keyformat.py",
    "routes/naming.py",
    "routes/playbook.py",
    "routes/standin.py",
    "routes/usage/buckets.py",
    "routes/usage/sums.py",
    "routes/strength.py",
    "routes/warnings.py",
]

#: modules in those folders that put what pure code found into words, and are imported by no pure module
WORDS = {
    "engines/probe/notes.py",
    "engines/vllm/failures.py",
}


def modules() -> list[Path]:
    found: list[Path] = []
    for entry in PURE:
        path = BASE_DIR / entry
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [path for path in found if str(path.relative_to(BASE_DIR)) not in WORDS]


def imports(path: Path) -> set[str]:
    """Dotted names the module imports when it is loaded; those for type checkers alone do not count."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def own_file(name: str) -> Path | None:
    """The file of one of kvadmin's own modules."""
    path = BASE_DIR.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def banned_in(path: Path, seen: set[Path]) -> set[str]:
    if path in seen:
        return set()
    seen.add(path)
    found: set[str] = set()
    for name in imports(path):
        parts = name.split(".")
        prefixes = {".".join(parts[: length + 1]) for length in range(len(parts))}
        if prefixes & BANNED:
            found.add(f"{path.relative_to(BASE_DIR)} imports {name}")
        # a package's __init__ runs before any of its modules
        for prefix in prefixes:
            inner = own_file(prefix)
            if inner:
                found |= banned_in(inner, seen)
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(BASE_DIR)))
def test_it_imports_nothing_that_reaches_out(path):
    assert banned_in(path, set()) == set()


def test_it_would_see_a_banned_import(tmp_path):
    (tmp_path / "bad.py").write_text("def f():\n    from django.db import models\n")
    assert "django.db" in imports(tmp_path / "bad.py")
    (tmp_path / "typed.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import paramiko\n"
    )
    assert "paramiko" not in imports(tmp_path / "typed.py")

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(
    path.stem
    for app in ("kvadmin", "engines", "routes")
    for path in (ROOT / app / "management" / "commands").glob("*.py")
    if path.stem != "__init__"
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_test(command):
    names = [path.stem for path in (ROOT / "tests").rglob("test_command_*.py")]
    assert f"test_command_{command}" in names

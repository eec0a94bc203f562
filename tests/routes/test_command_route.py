"""manage.py route: the playbook's JSON in and out."""

from __future__ import annotations

import json
import sys
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from routes.models import Route, Target
from tests.routes.test_playbook import ONE
from tests.support.route_factories import OutsideTargetFactory

pytestmark = pytest.mark.django_db


def run(*args):
    out, err = StringIO(), StringIO()
    call_command("route", *args, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_a_file_comes_in_and_goes_out_as_it_stands(tmp_path):
    given, written = tmp_path / "routes.json", tmp_path / "again.json"
    given.write_text(json.dumps([ONE, {**ONE, "model_name": "qwen3-32b-awq", "api_key": "sk-there-1234"}]))
    _out, err = run("import", str(given))
    assert "qwen3-32b-awq: made" in err
    assert Target.objects.get(route__name="qwen3-32b-awq").api_key == "sk-there-1234"
    run("export", str(written))
    assert "sk-there" not in written.read_text()
    assert json.loads(written.read_text()) == [
        {name: value for name, value in {**ONE, "model_name": model}.items() if name != "api_key"}
        for model in ("qwen3-32b-awq", "qwen3-8b")
    ]
    _out, err = run("import", str(written))
    assert "qwen3-8b: as before" in err
    assert Target.objects.get(route__name="qwen3-32b-awq").api_key == "sk-there-1234"


def test_standard_input_and_output(monkeypatch):
    monkeypatch.setattr(sys, "stdin", StringIO(json.dumps(ONE)))
    run("import", "-")
    assert json.loads(run("export")[0])[0]["base_url"] == "http://your-vllm-host:8000/v1"
    assert "qwen3-8b\tserving\t1" in run("list")[0]


def test_routes_that_exist_are_overwritten_only_when_asked(tmp_path):
    OutsideTargetFactory(route__name="qwen3-8b")
    given = tmp_path / "routes.json"
    given.write_text(json.dumps(ONE))
    with pytest.raises(CommandError, match="exist and differ"):
        run("import", str(given))
    run("import", "--replace", str(given))
    assert [target.base_url for target in Route.objects.get().targets.all()] == ["http://your-vllm-host:8000"]


def test_refusals_are_sentences(tmp_path):
    with pytest.raises(CommandError, match="cannot be read"):
        run("import", str(tmp_path / "none.json"))
    wrong = tmp_path / "routes.json"
    wrong.write_text(json.dumps({**ONE, "base_url": "vllm"}))
    with pytest.raises(CommandError, match="Entry 1"):
        run("import", str(wrong))
    with pytest.raises(CommandError, match="cannot be written"):
        run("export", str(tmp_path / "no" / "folder.json"))
    assert not Route.objects.exists()

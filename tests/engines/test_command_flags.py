"""A version that the catalogue lacks: its flags are read from the host, by the probe or by the command."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engines.actions.probe_host import ProbeHost
from engines.actions.store_flags import StoreFlags
from engines.choices import HostKind, HostState, OperationState
from engines.flag_lists import FlagsUnreadable, read_flags, release_for
from engines.models import VllmFlags
from engines.operations import runner
from engines.ssh.session import session_for
from engines.vllm.help_text import read_help
from engines.vllm.releases import Source
from kvadmin.actions import Actor, Denied
from kvadmin.models import AuditEvent
from kvadmin.policies import Role
from tests.engines.probe.test_scripts import environment
from tests.engines.vllm.test_help_text import HELP
from tests.support import real_vllm
from tests.support.factories import EnvironmentFactory, HostFactory
from tests.support.people import make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def this_machine(home):
    return HostFactory(
        name="here", kind=HostKind.LOCAL, address="", auth="none", host_key="", state=HostState.ONLINE
    )


def installed(home: Path, version: str, *, old: bool = False) -> Path:
    """A ``vllm`` that prints its help; an ``old`` one knows no --help=all."""
    folder = home / ".kvadmin" / "envs" / f"vllm-{version}"
    environment(folder, version)
    (folder / "help.txt").write_text(HELP)
    asked = "--help" if old else "--help=all"
    (folder / "bin" / "vllm").write_text(
        f'#!/bin/sh\n[ "$1 $2" = "serve {asked}" ] || exit 2\n[ "$COLUMNS" -ge 500 ] || exit 3\n'
        f"cat '{folder}/help.txt'\n"
    )
    return folder


def row(host, folder: Path, version: str):
    return EnvironmentFactory(
        host=host, path=str(folder), executable=str(folder / "bin" / "vllm"), version=version
    )


def flags(*arguments: str) -> str:
    out = StringIO()
    call_command("flags", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def test_the_command_reads_what_the_catalogue_lacks(this_machine, home):
    row(this_machine, installed(home, "0.32.0"), "0.32.0")
    row(this_machine, installed(home, "0.34.0"), "0.34.0")
    assert release_for("0.34.0").source is Source.NEAREST
    assert flags("read", "here") == "vLLM 0.34.0: 11 flags.\n"
    found = release_for("0.34.0")
    assert (found.source, found.exact, len(found.flags)) == (Source.HOST, True, 11)
    assert found.flags["--brand-new-share"].default == 0.5
    assert "11 flags from here" in flags("list")
    assert "--brand-new-share  float  default 0.5" in flags("show", "0.34.0")
    assert flags("read", "here") == "Every version installed there is known.\n"
    entry = AuditEvent.objects.get(verb="vllm.store_flags")
    assert entry.after["version"] == "0.34.0"


def test_the_catalogue_is_not_overruled_by_a_list(this_machine, home):
    row(this_machine, installed(home, "0.32.0"), "0.32.0")
    assert "11 flags" in flags("read", "here", "--again")
    assert release_for("0.32.0").source is Source.CATALOGUE
    assert len(release_for("0.32.0").flags) > 300


def test_the_command_forgets_a_list(this_machine, home):
    row(this_machine, installed(home, "0.34.0"), "0.34.0")
    flags("read", "here")
    flags("remove", "0.34.0")
    assert not VllmFlags.objects.exists()
    with pytest.raises(CommandError, match="No list"):
        flags("remove", "0.34.0")


def test_the_command_says_what_is_wrong(this_machine, home):
    with pytest.raises(CommandError, match="no host named there"):
        flags("read", "there")
    folder = installed(home, "0.34.0")
    (folder / "help.txt").write_text("ImportError: libcuda.so.1")
    row(this_machine, folder, "0.34.0")
    with pytest.raises(CommandError, match="printed no list of flags"):
        flags("read", "here")


def test_an_unknown_version_is_shown_with_the_one_that_stands_in():
    assert "these are the flags of 0.33.0" in flags("show", "0.99.0")


def test_an_older_vllm_is_asked_in_its_own_way(this_machine, home):
    folder = installed(home, "0.6.5", old=True)
    assert set(read_flags(session_for(this_machine), str(folder / "bin" / "vllm"))) == set(read_help(HELP))
    with pytest.raises(FlagsUnreadable):
        read_flags(session_for(this_machine), "/bin/true")


def test_the_probe_reads_flags_of_unknown_versions_once(this_machine, home):
    installed(home, "0.32.0")
    installed(home, "0.34.0")
    for expected in ("Flags of vLLM 0.34.0.", ""):
        operation = ProbeHost(Actor.system(), host=this_machine).run()
        for _tick in range(20):
            if runner.tick(operation.pk) is None:
                break
        operation.refresh_from_db()
        assert operation.state == OperationState.SUCCEEDED, operation.message
        assert operation.steps.get(name="flags").detail == expected
    assert list(VllmFlags.objects.values_list("version", flat=True)) == ["0.34.0"]


def test_a_viewer_may_not_store_flags(this_machine):
    viewer = Actor(user=make_person("vera", Role.VIEWER), source="web")
    with pytest.raises(Denied):
        StoreFlags(viewer, this_machine, "0.34.0", "/vllm", read_help(HELP)).run()


@pytest.mark.vllm
def test_flags_of_a_real_vllm_are_read_from_its_host(this_machine):
    found = read_flags(session_for(this_machine), str(real_vllm.executable()))
    assert set(found) == set(release_for(real_vllm.VERSION).flags)

"""What a release has: from the catalogue, from a host's own list, or from the nearest older one."""

from __future__ import annotations

import pytest

from engines.vllm import catalog
from engines.vllm.releases import Source, catalogued, flags_as_json, flags_from, release
from engines.vllm.versions import before, version_key


def test_the_catalogue_holds_every_release_that_was_read():
    assert len(catalog.versions()) == 47
    assert (catalog.versions()[0], catalog.newest_release()) == ("0.6.3.post1", "0.33.0")
    assert list(catalog.versions()) == sorted(catalog.versions(), key=version_key)


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.6.3.post1", "--swap-space", "--enable-log-requests"),
        ("0.17.1", "--swap-space", "--disable-log-requests"),
        ("0.18.0", "--enable-log-requests", "--swap-space"),
        ("0.33.0", "--max-num-queued-reqs", "--task"),
    ],
)
def test_a_release_has_its_own_flags(version, has, lacks):
    found = release(version)
    assert has in found.flags
    assert lacks not in found.flags
    assert (found.source, found.read_from, found.exact) == (Source.CATALOGUE, version, True)


def test_defaults_choices_and_kinds_go_by_era():
    share = "--gpu-memory-utilization"
    assert [release(one).flags[share].default for one in ("0.19.1", "0.20.0")] == [0.9, 0.92]
    pages = [release(one).flags["--block-size"] for one in ("0.6.3.post1", "0.10.2", "0.33.0")]
    assert [page.choices for page in pages] == [(8, 16, 32), (1, 8, 16, 32, 64, 128), ()]
    assert [page.kind for page in pages] == ["choice", "choice", "int"]
    assert "nvfp4" not in release("0.10.2").flags["--kv-cache-dtype"].choices
    assert "nvfp4" in release("0.33.0").flags["--kv-cache-dtype"].choices


def test_deprecation_goes_by_era():
    flag = "--disable-log-requests"
    assert [release(one).flags[flag].deprecated for one in ("0.10.0", "0.10.1", "0.16.0")] == [
        False,
        True,
        True,
    ]


def test_a_spelling_means_what_the_release_takes_it_for():
    old, new = release("0.11.2"), release("0.12.0")
    assert old.resolve("-O")[0].name == "--compilation-config"
    assert new.resolve("-cc")[0].name == "--compilation-config"
    flag, off = release("0.33.0").resolve("--disable-log-requests")
    assert (flag.name, off) == ("--enable-log-requests", True)
    assert release("0.32.0").resolve("--disable-log-requests") is None
    assert new.resolve("--max_model_len")[0].name == "--max-model-len"
    assert new.resolve("--compilation-config.mode")[0].name == "--compilation-config"
    assert new.resolve("--max-model-l")[0].name == "--max-model-len"
    assert new.resolve("--max") is None


@pytest.mark.parametrize(
    ("version", "stand_in"),
    [
        ("0.34.0", "0.33.0"),
        ("0.18.5", "0.18.1"),
        ("0.5.4", "0.6.3.post1"),
        ("0.20.3.dev7+gabc", "0.20.2"),
        ("nightly", "0.6.3.post1"),
    ],
)
def test_the_nearest_older_release_stands_in_for_an_unknown_one(version, stand_in):
    found = release(version)
    assert (found.source, found.read_from, found.exact) == (Source.NEAREST, stand_in, False)
    assert found.flags == catalogued(stand_in).flags


def test_a_hosts_own_list_is_used_where_the_catalogue_lacks_the_version():
    listed = flags_as_json(release("0.33.0").flags)
    listed["--brand-new"] = {"kind": "int", "default": 3}
    found = release("0.34.0", listed)
    assert (found.source, found.exact) == (Source.HOST, True)
    assert found.flags["--brand-new"].default == 3
    # and not where it has it
    assert "--brand-new" not in release("0.33.0+cpu", listed).flags


def test_a_list_goes_through_json_unchanged():
    flags = release("0.33.0").flags
    assert flags_from(flags_as_json(flags)) == dict(flags)


def test_versions_are_in_order():
    told = [
        "0.6.3.post1",
        "0.6.6.post1",
        "0.10.1.dev3",
        "0.10.1rc1",
        "0.10.1",
        "0.10.1.1",
        "0.10.2",
        "0.33.0",
    ]
    assert sorted(sorted(told), key=version_key) == told
    assert not before("0.33.0+cpu", "0.33.0")
    assert before("0.9.2", "0.10.0")

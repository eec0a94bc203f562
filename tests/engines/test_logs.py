import json
from pathlib import Path

import pytest
from django.urls import reverse

from engines import logs
from engines.choices import HostAuth, HostKind
from engines.models import EngineStart
from engines.views.engines.log import follow
from tests.support.factories import EngineFactory, HostFactory, ProfileFactory, RevisionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def start(tmp_path):
    """A start on this machine whose log is a file here."""
    host = HostFactory(kind=HostKind.LOCAL, auth=HostAuth.NONE, address="", work_dir=str(tmp_path))
    path = tmp_path / "log"
    path.write_bytes(b"")
    engine = EngineFactory(host=host)
    return EngineStart.objects.create(engine=engine, number=1, log_path=str(path))


def write(start, data):
    Path(start.log_path).write_bytes(data)


def test_pieces_read_backwards_join_to_the_whole_file(start):
    whole = "".join(f"INFO line {n} 缓存\n" for n in range(9000)).encode()
    write(start, whole)
    chunk = logs.tail(start, lines=50)
    assert chunk.text.count("\n") == 50
    text, offset = chunk.text, chunk.start_offset
    while offset:
        piece = logs.before(start, offset, 20_000)
        assert piece.end_offset == offset
        assert piece.start_offset < offset
        text, offset = piece.text + text, piece.start_offset
    assert text.encode() == whole


def test_following_gives_each_line_once_and_never_half_a_character(start):
    write(start, "first\nsecond 缓".encode()[:-1])
    chunk = logs.after(start, 0)
    assert chunk.text == "first\n"
    rest = logs.after(start, chunk.end_offset)
    assert rest.text == "second "
    write(start, "first\nsecond 缓存\n".encode())
    assert logs.after(start, rest.end_offset).text == "缓存\n"


def test_a_file_that_was_replaced_is_read_from_its_beginning(start):
    write(start, b"new\n")
    assert logs.after(start, 5000).text == "new\n"


def test_no_file_and_an_empty_file_have_an_empty_tail(start):
    assert logs.tail(start) == logs.Chunk(0, 0, "")
    start.log_path += ".gone"
    assert logs.tail(start) == logs.Chunk(0, 0, "")


def test_search_finds_plain_text_and_says_where(start):
    whole = b"one\nERROR a.*b $(touch /tmp/x)\nthree\nerror again\n"
    write(start, whole)
    hits = logs.search(start, "error")
    assert [hit.offset for hit in hits] == [4, whole.index(b"error again")]
    assert logs.search(start, "a.*b $(touch")[0].text.startswith("ERROR a.*b")
    assert logs.search(start, "-e") == []


def test_the_tail_of_a_big_file_reads_a_little(start, monkeypatch):
    from engines.ssh.shell import ShellSession

    with Path(start.log_path).open("wb") as file:
        file.truncate(100_000_000)
        file.seek(0, 2)
        file.write(b"\nlast line\n")
    asked = []
    inner = ShellSession.read_range
    monkeypatch.setattr(
        ShellSession,
        "read_range",
        lambda self, path, offset, length: asked.append(length) or inner(self, path, offset, length),
    )
    assert logs.tail(start, lines=1).text == "last line\n"
    assert sum(asked) <= logs.TAIL_BYTES


def test_the_page_its_pieces_and_the_download(client, viewer, outsider, start):
    write(start, b"INFO ready\n" * 2000)
    page = reverse("engines:engine_log", args=[start.engine_id])
    chunk = reverse("engines:engine_log_chunk", args=[start.engine_id])
    download = reverse("engines:engine_log_download", args=[start.engine_id])
    search = reverse("engines:engine_log_search", args=[start.engine_id])
    client.force_login(outsider)
    assert [client.get(url).status_code for url in (page, chunk, download, search)] == [403] * 4
    client.force_login(viewer)
    assert "INFO ready" in client.get(page).content.decode()
    first = client.get(chunk, {"before": 11 * 100}).json()
    assert first == {"start": 0, "end": 1100, "text": "INFO ready\n" * 100}
    body = b"".join(client.get(download).streaming_content)
    assert body == b"INFO ready\n" * 2000
    found = client.get(search, {"q": "READY"}).json()
    assert len(found["hits"]) == 200
    assert found["more"]


SECRET = "fixture-Secret/0123456789-abcdefghijkl"


class FileSession:
    """Reads a file of this machine without a process for each read."""

    def size(self, path):
        return Path(path).stat().st_size

    def read_range(self, path, offset, length):
        return Path(path).read_bytes()[offset : offset + length]

    def close(self):
        pass


@pytest.fixture
def quick_session(monkeypatch):
    monkeypatch.setattr(logs, "session_for", lambda host: FileSession())


@pytest.fixture
def secret_start(start):
    start.engine.api_key = SECRET
    start.engine.save()
    return EngineStart.objects.select_related("engine__host").get(pk=start.pk)


def test_no_way_of_reading_shows_a_secret_and_offsets_stay_those_of_the_file(
    client, viewer, secret_start, monkeypatch
):
    whole = "".join(f"INFO {n} args: api_key=['{SECRET}'] 缓存\n" for n in range(300)).encode()
    write(secret_start, whole)
    monkeypatch.setattr("engines.logs.PIECE_BYTES", 1000)
    engine = secret_start.engine_id
    client.force_login(viewer)
    seen = [client.get(reverse("engines:engine_log", args=[engine])).content.decode()]
    seen.append(b"".join(client.get(reverse("engines:engine_log_download", args=[engine]))).decode())
    assert len(seen[-1].encode()) == len(whole)
    chunk = reverse("engines:engine_log_chunk", args=[engine])
    for offset in range(1, 200, 41):
        piece = client.get(chunk, {"after": offset}).json()
        seen += [piece["text"], client.get(chunk, {"before": offset}).json()["text"]]
        assert len(piece["text"].encode(errors="replace")) >= piece["end"] - piece["start"]
    assert client.get(reverse("engines:engine_log_search", args=[engine]), {"q": "args"}).json()["hits"]
    for text in seen:
        assert not any(SECRET[at : at + 8] in text for at in range(len(SECRET) - 8))


def test_pieces_cut_inside_a_secret_show_no_half_of_it(secret_start, quick_session):
    whole = f"key {SECRET} and {SECRET}".encode()
    write(secret_start, whole)
    masked = f"key {'*' * len(SECRET)} and {'*' * len(SECRET)}".encode()
    for cut in range(len(whole)):
        assert logs.read(secret_start, 0, cut) == masked[:cut]
        assert logs.read(secret_start, cut, 1000) == masked[cut:]


def test_a_secret_that_is_still_being_written_waits_for_its_rest(secret_start, quick_session):
    shown, offset = "", 0
    whole = f"key {SECRET} end\n".encode()
    for length in range(1, len(whole) + 1):
        write(secret_start, whole[:length])
        chunk = logs.after(secret_start, offset)
        shown, offset = shown + chunk.text, chunk.end_offset
    assert shown == f"key {'*' * len(SECRET)} end\n"


def test_secrets_of_the_profile_are_hidden_as_python_and_json_print_them(start):
    secret = 'quote"back\\slash-and-more'
    profile = ProfileFactory()
    revision = RevisionFactory(profile=profile, secret_environment=json.dumps({"OTHER": secret}))
    start.revision = revision
    start.save()
    write(start, f"{secret}\n{secret!r}\n{json.dumps(secret)}\n".encode())
    text = logs.tail(start).text
    assert "slash" not in text
    assert "quote" not in text


def test_a_search_does_not_tell_whether_a_guess_is_in_a_secret(secret_start):
    write(secret_start, f"one key {SECRET}\ntwo\n".encode())
    assert logs.search(secret_start, SECRET[:9]) == []
    (hit,) = logs.search(secret_start, "one key")
    assert hit.text == f"one key {'*' * len(SECRET)}"


def test_numbers_behind_names_like_those_of_secrets_stay_readable(start):
    write(start, b"prompt_tokens: 12, hf_token=abcdefghij, token: None\n")
    assert logs.tail(start).text == "prompt_tokens: 12, hf_token=**********, token: None\n"


def download(client, start):
    return client.get(reverse("engines:engine_log_download", args=[start.engine_id]), follow=True)


def test_a_download_of_a_log_that_is_gone_says_so_on_the_page(client, viewer, start):
    Path(start.log_path).unlink()
    client.force_login(viewer)
    page = download(client, start)
    assert page.redirect_chain[0][0].endswith("?start=1")
    assert "The log is gone from the host" in page.content.decode()


def test_a_download_ends_with_why_it_broke_off(client, viewer, start, monkeypatch):
    monkeypatch.setattr(logs, "COPY_BYTES", 10)
    client.force_login(viewer)
    for change, why in (
        (lambda: Path(start.log_path).unlink(), "[kvadmin: this copy breaks off here, at byte 10 of 36: "),
        (lambda: write(start, b"INFO"), "of 36: the file became shorter while it was read]"),
    ):
        write(start, b"INFO line 1\n" * 3)
        pieces = iter(download(client, start).streaming_content)
        assert next(pieces) == b"INFO line "
        change()
        rest = b"".join(pieces).decode()
        assert why in rest
        assert rest.endswith("]\n")


def test_a_download_of_a_growing_log_ends(start, monkeypatch):
    monkeypatch.setattr(logs, "COPY_BYTES", 12)
    write(start, b"INFO line 1\n" * 2)
    copied = b""
    for piece in logs.copy(start):
        copied += piece
        with Path(start.log_path).open("ab") as file:
            file.write(b"INFO line 2\n" * 2)
    assert copied == b"INFO line 1\n" * 2


def test_following_a_log_that_goes_away_says_so(client, viewer, start):
    write(start, b"first\n")
    with pytest.raises(logs.LogGone):
        Path(start.log_path).unlink()
        logs.after(start, 6)
    assert logs.after(start, 0).text == ""


def test_the_stream_says_when_the_log_begins_anew_or_goes_away(start):
    write(start, b"new\n")
    look = follow(start, 500)
    assert [event.name for event in look.events] == ["anew", "lines"]
    assert look.cursor == 4
    assert follow(start, 4).events == []
    Path(start.log_path).unlink()
    (event,) = follow(start, 4).events
    assert event.name == "trouble"
    assert "gone from the host" in event.data

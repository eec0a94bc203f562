import pytest

from engines.provision.pip_output import PipProgress, classify_failure, last_error

LOG = """\
Looking in indexes: https://packages.example.com/simple
Collecting vllm==0.33.0
  Downloading vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl.metadata (16 kB)
Collecting torch==2.14.0 (from vllm==0.33.0)
  Downloading torch-2.14.0-cp312-cp312-manylinux_2_28_x86_64.whl.metadata (30 kB)
Downloading vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl (512.5 MB)
"""


def fed(text):
    progress = PipProgress()
    shown = [line for line in text.splitlines() if progress.feed(line)]
    return progress, shown


def test_it_follows_a_download_in_bytes():
    progress, shown = fed(LOG + "Progress 0 of 512500000\nProgress 256250000 of 512500000\n")
    assert (progress.phase, progress.package) == (
        "downloading",
        "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl",
    )
    assert (progress.received, progress.size, progress.collected) == (256250000, 512500000, 2)
    assert not any(line.startswith("Progress") for line in shown)


def test_finished_files_count_and_the_bar_never_goes_back():
    text = LOG + "Progress 512500000 of 512500000\n"
    progress, _ = fed(text)
    before = progress.fraction(1_000_000_000)
    progress.feed("Downloading torch-2.14.0-cp312-cp312-manylinux_2_28_x86_64.whl (400.0 MB)")
    assert progress.fetched == 512500000
    assert progress.fraction(1_000_000_000) >= before
    progress.feed("Installing collected packages: a, b, c")
    assert progress.fraction(1_000_000_000) == 0.85
    progress.feed("Successfully installed a-1 b-2 c-3")
    assert (progress.phase, progress.count, progress.fraction(1)) == ("installed", 3, 0.98)


def test_nothing_said_is_no_progress():
    assert PipProgress().fraction(10) is None


def test_it_survives_being_kept_as_json():
    progress, _ = fed(LOG)
    assert PipProgress.from_dict(progress.as_dict()) == progress
    assert PipProgress.from_dict({"phase": "installing", "unknown": 1}).phase == "installing"


NO_VERSION = """\
ERROR: Could not find a version that satisfies the requirement vllm==9.9.9 (from versions: 0.33.0)
ERROR: No matching distribution found for vllm==9.9.9
"""
NO_NETWORK = """\
Failed to establish a new connection: [Errno -3] Temporary failure in name resolution
ERROR: No matching distribution found for torch==2.14.0
"""


@pytest.mark.parametrize(
    ("code", "status", "tail"),
    [
        ("disk_full", 1, "ERROR: Could not install packages due to an OSError: [Errno 28] No space left"),
        ("no_such_version", 1, NO_VERSION),
        ("wheel_missing", 1, "ERROR: No matching distribution found for numba==0.65.0"),
        ("proxy_refused", 1, "ProxyError('Cannot connect to proxy.', OSError('Tunnel failed: 407'))"),
        ("certificate", 1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        ("index_unreachable", 1, NO_NETWORK),
        ("index_refused", 1, "ERROR: HTTP error 401 while getting https://packages.example.com/simple/vllm/"),
        ("conflict", 1, "ERROR: ResolutionImpossible: for help visit"),
        ("wrong_python", 1, "ERROR: Package 'x' requires a different Python: 3.9.2 not in '>=3.10'"),
        ("build_failed", 1, "error: metadata-generation-failed"),
        ("wheel_broken", 1, "ERROR: Wheel 'x' located at /w/x.whl is invalid."),
        ("killed", 137, "Collecting x"),
        ("install_failed", 2, "Something else"),
    ],
)
def test_it_knows_why_pip_gave_up(code, status, tail):
    assert classify_failure(tail, status) == code


def test_the_last_error_is_the_sentence_shown():
    assert last_error("ERROR: one\nERROR: two\nWARNING: three\n") == "two"
    assert last_error("only this\n") == "only this"
    assert last_error("") == ""

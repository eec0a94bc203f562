"""The sentences of provisioning: each code with its message and what to do about it."""

from __future__ import annotations

from typing import Any

from django.template.defaultfilters import filesizeformat

from engines.provision.judge import Problem
from engines.provision.pip_output import PipProgress
from kvadmin.sentences import gettext as _

Words = tuple[str, str]


def problem_words(problem: Problem) -> Words:
    """Message and remedy of a problem found by the check."""
    values = {
        key: filesizeformat(value) if key in {"free", "needed"} and isinstance(value, int) else value
        for key, value in problem.values.items()
    }
    message, remedy = _problem(problem.code, bool(values.get("have")))
    return message % values, remedy % values


def _problem(code: str, has_some: bool) -> Words:
    match code:
        case "not_writable":
            return (
                _("The folder %(path)s cannot be written by the user that kvadmin signs in as."),
                _("Choose another folder on the host's page, or give that user the right to write there."),
            )
        case "environment_foreign":
            return (
                _("In %(path)s there is already a folder of this name that kvadmin did not make."),
                _("Register it as an existing environment, or move it away."),
            )
        case "too_old":
            return (
                _("vLLM %(version)s is older than the oldest release kvadmin knows (0.6.3)."),
                _("Choose a newer version."),
            )
        case "no_venv":
            return (
                _("Python %(minor)s is there (%(path)s), but it cannot make virtual environments."),
                _("On Debian and Ubuntu, as root: apt install python%(minor)s-venv. Or install uv."),
            )
        case "no_python":
            found = _("Found: %(have)s.") if has_some else _("No Python 3 was found.")
            return (
                _("vLLM %(version)s needs Python %(floor)s to %(last)s.") + " " + found,
                _("Install one of them on the host, or name its path in the form."),
            )
        case "glibc_old":
            return (
                _("vLLM %(version)s needs glibc %(needed)s or newer; the host has %(have)s."),
                _("Choose another vLLM version, or upgrade the host's operating system."),
            )
        case "no_glibc":
            return (
                _("The host has no glibc, and vLLM's packages are built for it."),
                _("Use a host with a distribution such as Debian, Ubuntu or Rocky Linux."),
            )
        case "disk_small":
            return (
                _("%(free)s are free at %(path)s; this needs about %(needed)s."),
                _("Free some space, or set a folder on a larger disk on the host's page."),
            )
        case "wheels_missing":
            return (
                _("There is no wheel folder %(path)s on the host."),
                _("Copy the wheels there, or correct the folder on the host's page."),
            )
        case "wheels_unreadable":
            return (
                _("The wheel folder %(path)s cannot be read."),
                _("Give the user that kvadmin signs in as the right to read it."),
            )
        case "wheels_empty":
            return (
                _("The wheel folder %(path)s holds no .whl file."),
                _("Fill it on a machine with network: pip download vllm==VERSION -d FOLDER."),
            )
        case "gpu_error":
            return (
                _("The NVIDIA driver does not answer: %(error)s"),
                _("Repair the driver on the host first; after a driver update that is often a reboot."),
            )
        case "no_gpu":
            return (
                _("No NVIDIA GPU was found on this host, and the CUDA build of vLLM does not start without."),
                _("Choose the CPU build."),
            )
        case "driver_old":
            return (
                _("Driver %(have)s cannot run CUDA %(cuda)s of vLLM %(version)s: %(needed)s is the oldest."),
                _("Update the driver, or choose an older vLLM version."),
            )
        case "driver_older":
            return (
                _("Driver %(have)s runs CUDA %(cuda)s only in compatibility mode; it came with %(needed)s."),
                _("If kernels fail to compile at start, update the driver."),
            )
        case _:
            return code, ""


def failure_words(code: str, *, version: str, status: int, said: str) -> Words:
    """Message and remedy of an install that failed; ``said`` is pip's own last sentence."""
    values: dict[str, Any] = {"version": version, "status": status, "said": said}
    message, remedy = _failure(code)
    return message % values, remedy


def _failure(code: str) -> Words:
    match code:
        case "disk_full":
            return (
                _("The host's disk filled up while packages were being installed."),
                _("Free some space and provision again; what was downloaded is kept."),
            )
        case "no_such_version":
            return (
                _("The package source has no vLLM %(version)s for this Python and machine."),
                _("Check the version; with a wheel folder, check that its wheel is in it."),
            )
        case "proxy_refused":
            return (
                _("The proxy refused the connection."),
                _("Check the proxy on the host's page; a sign-in belongs into pip's settings on the host."),
            )
        case "certificate":
            return (
                _("The package index's certificate is not trusted by the host."),
                _("Install the company's root certificate on the host, or set pip's cert option there."),
            )
        case "index_unreachable":
            return (
                _("The host does not reach the package index."),
                _("Set an index, a proxy or a wheel folder on the host's page, then provision again."),
            )
        case "index_refused":
            return (
                _("The package index refused the request."),
                _("Put the credentials into ~/.netrc or pip's settings on the host."),
            )
        case "wheel_missing":
            return (
                _("A package that vLLM needs is missing: %(said)s"),
                _("Add it to the package source; pip download collects a version with all it needs."),
            )
        case "conflict":
            return (
                _("The packages contradict each other: %(said)s"),
                _("Look for constraints in pip's settings on the host, or choose another version."),
            )
        case "wrong_python":
            return (
                _("A package does not fit this Python: %(said)s"),
                _("Choose another Python in the form."),
            )
        case "build_failed":
            return (
                _("A package had to be built on the host, and that failed: %(said)s"),
                _("Use a Python and machine for which wheels exist, or put a wheel into the source."),
            )
        case "wheel_broken":
            return (
                _("A wheel is damaged: %(said)s"),
                _("Copy or download it again."),
            )
        case "denied":
            return (
                _("A file could not be written or read: %(said)s"),
                _("Check the owner of the folder on the host."),
            )
        case "killed":
            return (
                _("The installation was ended from outside (status %(status)d)."),
                _("Often memory ran out: look into the host's system log, then provision again."),
            )
        case _:
            return (
                _("The installation failed (status %(status)d): %(said)s"),
                _("The log below has the details."),
            )


def inspect_words(problem: str, path: str) -> Words:
    """Message and remedy of a folder that cannot be registered as an environment."""
    values = {"path": path}
    remedy = _("Give the folder that holds bin/python and bin/vllm.")
    match problem:
        case "no_folder":
            return _("There is no folder %(path)s on the host.") % values, remedy
        case "no_python":
            return _("%(path)s has no bin/python: it is not a virtual environment.") % values, remedy
        case "no_vllm":
            return _("%(path)s has no bin/vllm: vLLM is not installed in it.") % values, remedy
        case _:
            return (
                _("The environment %(path)s does not know which vLLM it holds.") % values,
                _("Reinstall vLLM in it, or provision a new environment."),
            )


def progress_words(progress: PipProgress) -> str:
    """What pip is doing now, in a few words."""
    values = {
        "package": progress.package,
        "received": filesizeformat(progress.received),
        "size": filesizeformat(progress.size),
        "count": progress.count,
    }
    match progress.phase:
        case "collecting":
            return _("Looking for %(package)s") % values
        case "downloading" if progress.received and progress.size:
            return _("Downloading %(package)s: %(received)s of %(size)s") % values
        case "downloading" if progress.size:
            return _("Downloading %(package)s (%(size)s)") % values
        case "downloading":
            return _("Downloading %(package)s") % values
        case "building":
            return _("Building %(package)s") % values
        case "installing":
            return _("Unpacking %(count)d packages") % values
        case "installed":
            return _("%(count)d packages installed") % values
        case _:
            return _("Starting pip")

"""Static files of installed Python packages: served from there, not copied into the repository."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage

#: URL under STATIC_URL -> (package, file in it)
FILES = {"vendor/plotly.min.js": ("plotly", "package_data/plotly.min.js")}


class PackageFileFinder(BaseFinder):
    """Finds the files in FILES, and nothing else of their packages."""

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> str | list[str]:
        found = [str(_place(*FILES[path]))] if path in FILES else []
        if find_all or kwargs.get("all"):
            return found
        return found[0] if found else []

    def list(self, ignore_patterns: list[str] | None) -> Iterator[tuple[str, Storage]]:
        for url, (package, file) in FILES.items():
            folder, name = url.rsplit("/", 1)
            place = _place(package, file)
            if place.name != name:
                raise ValueError(f"{url} must end with the file's own name, {place.name}")
            storage = FileSystemStorage(location=place.parent)
            storage.prefix = folder  # where collectstatic puts it
            yield name, storage

    def check(self, **kwargs: Any) -> list:
        return []


def _place(package: str, file: str) -> Path:
    """The file's path, without importing the package (plotly takes a tenth of a second)."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0]) / file

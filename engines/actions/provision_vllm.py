from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from engines.actions.host_input import path_problem
from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import OperationKind
from engines.models import Host, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Action
from kvadmin.actions.mistakes import Mistakes

VARIANTS = ("cuda", "cpu")
SOURCES = ("index", "wheels")
_VERSION = re.compile(r"\d+(\.\d+){1,3}((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[A-Za-z0-9.]{1,30})?")
_PYTHON = re.compile(r"python3(\.\d{1,2})?|\d+\.\d{1,2}")


@dataclass
class ProvisionVllm(Action[Operation]):
    """Make an environment with a vLLM version on a host, or register an ``existing`` folder as one.

    ``variant`` is cuda or cpu; ``source`` index (the host's package index, or what pip on the host is
    set to) or wheels (the host's wheel folder). ``python`` is a path, "python3.12", "3.12" or empty.
    ``despite_driver`` goes on although the GPU driver is too old for the version.
    """

    verb: ClassVar[str] = "host.provision"
    permission: ClassVar[str] = "host.operate"

    host: Host
    version: str = ""
    variant: str = "cuda"
    source: str = "index"
    python: str = ""
    existing: str = ""
    despite_driver: bool = False

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        refuse_unconfirmed(self.host)
        mistakes = Mistakes()
        self.version = self.version.strip().removeprefix("v")
        self.python, self.existing = self.python.strip(), self.existing.strip()
        if self.existing:
            if problem := path_problem(self.existing):
                mistakes.add("existing", problem)
            mistakes.refuse()
            return
        if not _VERSION.fullmatch(self.version) or len(self.version) > 40:
            mistakes.add("version", _("Give a vLLM version, for example 0.33.0."))
        if self.variant not in VARIANTS:
            mistakes.add("variant", _("Choose the CUDA build or the CPU build."))
        if self.source not in SOURCES:
            mistakes.add("source", _("Choose the package index or the wheel folder."))
        elif self.source == "wheels" and not self.host.wheel_dir:
            mistakes.add("source", _("The host has no wheel folder: set one in its settings first."))
        if self.python and not _PYTHON.fullmatch(self.python) and path_problem(self.python):
            mistakes.add("python", _("Give a path to a Python, or a version such as 3.12."))
        mistakes.refuse()

    def execute(self) -> Operation:
        python = f"python{self.python}" if self.python[:1].isdigit() else self.python
        parameters = {
            "version": self.version,
            "variant": self.variant,
            "source": self.source,
            "python": python,
            "existing": self.existing,
            "despite_driver": self.despite_driver,
        }
        self.after = {name: value for name, value in parameters.items() if value}
        return begin_operation(
            OperationKind.PROVISION, actor=self.actor, host=self.host, parameters=parameters
        )

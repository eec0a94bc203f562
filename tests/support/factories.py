"""Rows for tests."""

from __future__ import annotations

import factory
from factory.django import DjangoModelFactory

from engines import models
from engines.choices import HostAuth, HostKind, HostState, OperationKind


class HostFactory(DjangoModelFactory):
    class Meta:
        model = models.Host

    name = factory.Sequence(lambda n: f"h200-{n}")
    kind = HostKind.SSH
    address = factory.Sequence(lambda n: f"10.0.0.{n % 250 + 1}")
    username = "ops"
    auth = HostAuth.KEY
    state = HostState.ONLINE
    host_key = "ssh-ed25519 AAAA"


class ProfileFactory(DjangoModelFactory):
    class Meta:
        model = models.Profile

    name = factory.Sequence(lambda n: f"qwen3-8b-v{n}")


class RevisionFactory(DjangoModelFactory):
    class Meta:
        model = models.Revision

    profile = factory.SubFactory(ProfileFactory)
    number = factory.LazyAttribute(lambda o: o.profile.revisions.count() + 1)
    model = "Qwen/Qwen3-8B"
    served_names = factory.LazyFunction(lambda: ["qwen3-8b"])
    values = factory.LazyFunction(lambda: {"max_model_len": 32768})


class EnvironmentFactory(DjangoModelFactory):
    class Meta:
        model = models.VllmEnvironment

    host = factory.SubFactory(HostFactory)
    path = factory.Sequence(lambda n: f"/home/ops/.kvadmin/envs/vllm-{n}")
    executable = factory.LazyAttribute(lambda o: f"{o.path}/bin/vllm")
    version = "0.32.0"


class EngineFactory(DjangoModelFactory):
    class Meta:
        model = models.Engine

    name = factory.Sequence(lambda n: f"engine-{n}")
    host = factory.SubFactory(HostFactory)
    revision = factory.SubFactory(RevisionFactory)
    port = factory.Sequence(lambda n: 8000 + n)


class OperationFactory(DjangoModelFactory):
    class Meta:
        model = models.Operation

    kind = OperationKind.PROBE
    host = factory.SubFactory(HostFactory)

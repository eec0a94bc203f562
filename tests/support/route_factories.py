"""Rows of teams, keys and routes for tests."""

from __future__ import annotations

import factory
from django.conf import settings
from factory.django import DjangoModelFactory

from kvadmin.models import Membership, Team
from kvadmin.policies import TeamRole
from routes import keyformat
from routes.models import Business, Key, Route, Target
from tests.support.factories import EngineFactory


class TeamFactory(DjangoModelFactory):
    class Meta:
        model = Team

    name = factory.Sequence(lambda n: f"team-{n}")


class MembershipFactory(DjangoModelFactory):
    class Meta:
        model = Membership

    team = factory.SubFactory(TeamFactory)
    role = TeamRole.MEMBER


class BusinessFactory(DjangoModelFactory):
    class Meta:
        model = Business

    team = factory.SubFactory(TeamFactory)
    name = factory.Sequence(lambda n: f"business-{n}")


class KeyFactory(DjangoModelFactory):
    """``secret`` is the text that callers send: ``KeyFactory(secret=...)``, else a new one, which the made
    object has as ``.secret``."""

    class Meta:
        model = Key

    business = factory.SubFactory(BusinessFactory)
    name = factory.Sequence(lambda n: f"key-{n}")

    @classmethod
    def _create(cls, model_class, *args, secret=None, **kwargs):
        if secret is None:
            kwargs["public_id"], secret = keyformat.new_key()
        else:
            kwargs.setdefault("public_id", keyformat.public_id(secret))
            if kwargs["public_id"] is None:
                kwargs.setdefault("hint", secret[-4:])
        kwargs["digest"] = keyformat.digest(secret, settings.KVADMIN_PEPPER)
        key = super()._create(model_class, *args, **kwargs)
        key.secret = secret
        return key


class RouteFactory(DjangoModelFactory):
    class Meta:
        model = Route

    name = factory.Sequence(lambda n: f"qwen3-8b-v{n + 1}")


class TargetFactory(DjangoModelFactory):
    class Meta:
        model = Target

    route = factory.SubFactory(RouteFactory)
    engine = factory.SubFactory(EngineFactory)


class OutsideTargetFactory(DjangoModelFactory):
    class Meta:
        model = Target

    route = factory.SubFactory(RouteFactory)
    base_url = factory.Sequence(lambda n: f"http://vllm-{n}.example.org:8000")

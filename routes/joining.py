"""Engines become targets of the routes that wait for them."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from engines.choices import EngineState
from engines.states import engine_moved
from kvadmin.actions import Actor


@receiver(engine_moved)
def join(sender: Any, engine_id: int, state: EngineState, **kwargs: Any) -> None:
    from engines.models import Engine
    from routes.actions.join_routes import JoinRoutes

    if state != EngineState.READY:
        return
    engine = Engine.objects.filter(pk=engine_id).first()
    if engine is not None:
        JoinRoutes(Actor.system(), engine).run()

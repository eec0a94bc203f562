"""The engines app's resources of the management API."""

from rest_framework.routers import SimpleRouter

from engines.api.engines import EngineViewSet
from engines.api.operations import OperationViewSet
from engines.api.profiles import ProfileViewSet


def register(router: SimpleRouter) -> None:
    router.register("operations", OperationViewSet, basename="operation")
    router.register("profiles", ProfileViewSet, basename="profile")
    router.register("engines", EngineViewSet, basename="engine")

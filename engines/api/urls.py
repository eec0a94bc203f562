"""The engines app's resources of the management API."""

from rest_framework.routers import SimpleRouter

from engines.api.engines import EngineViewSet
from engines.api.hosts import HostViewSet
from engines.api.operations import OperationViewSet
from engines.api.profiles import ProfileViewSet


def register(router: SimpleRouter) -> None:
    router.register("hosts", HostViewSet, basename="host")
    router.register("operations", OperationViewSet, basename="operation")
    router.register("profiles", ProfileViewSet, basename="profile")
    router.register("engines", EngineViewSet, basename="engine")

"""The routes app's resources of the management API."""

from rest_framework.routers import SimpleRouter

from routes.api.businesses import BusinessViewSet
from routes.api.keys import KeyViewSet
from routes.api.routes import RouteViewSet
from routes.api.teams import TeamViewSet
from routes.api.usage import UsageViewSet


def register(router: SimpleRouter) -> None:
    router.register("teams", TeamViewSet, basename="team")
    router.register("businesses", BusinessViewSet, basename="business")
    router.register("keys", KeyViewSet, basename="key")
    router.register("routes", RouteViewSet, basename="route")
    router.register("usage", UsageViewSet, basename="usage")

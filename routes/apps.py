from django.apps import AppConfig


class RoutesConfig(AppConfig):
    name = "routes"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from routes import joining  # noqa: F401  (listens to engines)

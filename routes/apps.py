from django.apps import AppConfig


class RoutesConfig(AppConfig):
    name = "routes"
    default_auto_field = "django.db.models.BigAutoField"

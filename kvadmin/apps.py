from django.apps import AppConfig


class KvadminConfig(AppConfig):
    name = "kvadmin"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvadmin import checks  # noqa: F401  (registers the system checks)
        from kvadmin.accounts import audit  # noqa: F401  (listens to sign-ins)

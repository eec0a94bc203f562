from django.apps import AppConfig


class KvadminConfig(AppConfig):
    name = "kvadmin"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # the Celery app, before any task is called; not in kvadmin/__init__.py, which the supervisor and
        # the gateway load too
        from kvadmin import celery, checks  # noqa: F401  (checks registers the system checks)
        from kvadmin.accounts import audit  # noqa: F401  (listens to sign-ins)

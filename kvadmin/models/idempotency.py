from django.conf import settings
from django.db import models


class IdempotencyRecord(models.Model):
    """The answer to a creating request that named an Idempotency-Key, kept for a day.

    ``request_digest`` tells a repeat (same body: the stored answer) from a misuse (other body: 409).
    ``status`` is null while the first request is still being answered.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    path = models.CharField(max_length=200)
    request_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "key", "path"], name="kvadmin_idempotency_key_unique"),
        ]
        indexes = [models.Index(fields=["created_at"], name="kvadmin_idempotency_age")]

    def __str__(self) -> str:
        return self.key

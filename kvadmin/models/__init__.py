from kvadmin.models.audit import AuditEvent
from kvadmin.models.idempotency import IdempotencyRecord
from kvadmin.models.token import ManagementToken
from kvadmin.models.user import User

__all__ = ["AuditEvent", "IdempotencyRecord", "ManagementToken", "User"]

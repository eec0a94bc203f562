from kvadmin.models.audit import AuditEvent
from kvadmin.models.idempotency import IdempotencyRecord
from kvadmin.models.team import Membership, Team
from kvadmin.models.token import ManagementToken
from kvadmin.models.user import User

__all__ = ["AuditEvent", "IdempotencyRecord", "ManagementToken", "Membership", "Team", "User"]

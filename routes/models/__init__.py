from routes.models.business import Business
from routes.models.key import Key
from routes.models.route import Route, Target

__all__ = ["Business", "Key", "Route", "Target"]

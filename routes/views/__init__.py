"""Pages of teams, keys, routes and models."""

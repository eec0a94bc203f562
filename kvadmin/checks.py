"""System checks: what would go wrong later, said before the start."""

"""What requests through the gateway consumed: rollups of it, how long it is kept, and reading it."""

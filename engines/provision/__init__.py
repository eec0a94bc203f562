"""Provisioning vLLM on a host, the pure parts: versions, scripts, what came back, what follows."""

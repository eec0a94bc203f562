"""Finding vLLM servers that run on a host: the scripts, and reading what they say. Pure."""

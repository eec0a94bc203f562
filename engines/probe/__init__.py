"""What a host is: its system, GPUs, Pythons, vLLM environments and models.

scripts.py has the POSIX sh that is run on the host, the parsers read what it printed: all pure.
engines/operations/probe.py runs them step by step and writes the result to ``Host.facts``.
"""

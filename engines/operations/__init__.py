"""Operations: things done to hosts and engines, step by step, surviving any crash of kvadmin.

A kind of operation is a Flow (base.py) in a module of its own; runner.py moves an operation on by one
tick at a time under a lock; a killed worker loses nothing but the tick it was in, so every step
must be safe to run again.
"""

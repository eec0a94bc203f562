"""Reaching a host, in three parts.

command.py builds what is sent and parse.py reads what came back: both pure. transport.py is the only
module that imports paramiko; pool.py keeps its connections; shell.py and session.py run scripts over
them, or (local.py) on this machine. keys.py makes, reads and checks keys.
"""

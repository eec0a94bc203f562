"""Starting, finding and ending engines on a host.

scripts/ is POSIX sh, run with arguments and never with values written into it. files.py writes what
the scripts read, scan.py and preflight.py read what they print (both pure); remote.py runs them.
"""

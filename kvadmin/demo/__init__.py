"""The demo: kvadmin's main job on this machine, through the same actions as everybody's."""

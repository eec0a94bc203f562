"""What a probe of a host with a GPU leaves in ``Host.facts``."""

FACTS = {
    "os": {"name": "Ubuntu", "version": "24.04", "kernel": "6.8.0", "glibc": "2.39"},
    "cpu": {"model": "Xeon", "cores": 64},
    "memory": {"total_bytes": 2**40, "available_bytes": 2**39},
    "disk": [{"path": "/home/ops/.kvadmin", "total_bytes": 2**42, "free_bytes": 2**41}],
    "gpus": [
        {
            "index": 0, "uuid": "GPU-1", "name": "NVIDIA H200", "memory_total_mib": 143771,
            "memory_used_mib": 70000, "memory_free_mib": 73771, "utilization_percent": 41,
            "temperature_c": 52, "power_w": 310.4, "driver": "580.65.06", "cuda": "13.0", "mig": False,
            "processes": [
                {"pid": 4711, "name": "python3", "user": "mallory", "memory_mib": 69000, "ours": False}
            ],
        }
    ],
    "pythons": [{"path": "/usr/bin/python3.12", "version": "3.12.3"}],
    "models": [{"path": "/srv/models/qwen", "name": "Qwen/Qwen3-8B", "bytes": 2**34, "kind": "folder"}],
    "systemd_user": True,
    "linger": False,
}  # fmt: skip

"""The sentences behind the notes of engines.probe.nvidia_smi."""

from __future__ import annotations

from engines.probe.nvidia_smi import GpuReport
from kvadmin.sentences import gettext as _


def gpu_note(report: GpuReport) -> str:
    """Why a host shows no GPU or not all of them, and what to do; "" when there is nothing to say."""
    match report.note:
        case "":
            return ""
        case "no_gpu":
            return _("This host has no GPU that can be seen.")
        case "amd_gpu":
            return _("This host has an AMD GPU. Its figures are not read: only NVIDIA's are.")
        case "intel_gpu":
            return _("This host has an Intel accelerator. Its figures are not read: only NVIDIA's are.")
        case "driver_missing":
            return _("There is an NVIDIA GPU, but its driver is not installed. Install the NVIDIA driver.")
        case "driver_mismatch":
            return _(
                "The NVIDIA driver was updated while the old one is still loaded. Restart the host, or "
                "reload the driver's modules."
            )
        case "driver_not_loaded":
            return _(
                "The NVIDIA driver is installed but not loaded. Restart the host; if that does not help, "
                "install the driver again for the present kernel."
            )
        case "no_permission":
            return _(
                "The user signed in as may not use the GPUs. Give the user access to /dev/nvidia*, "
                "usually through the group video or render."
            )
        case "no_devices":
            return _("The NVIDIA driver is there, but it sees no GPU. Check the card and the host's own log.")
        case "gpu_lost":
            return _(
                "A GPU does not answer the driver any more (it fell off the bus). Restart the host; if it "
                "comes back, have the card looked at."
            )
        case "nvml_unknown":
            return _(
                "The GPUs were taken away from this container or session. Restart the container, or the host."
            )
        case "timeout":
            return _(
                "nvidia-smi did not answer within 20 s: the driver hangs. Look at the host's own log; "
                "usually it has to be restarted."
            )
        case _:
            return _("nvidia-smi failed: %(text)s") % {"text": report.said or _("it printed nothing.")}

from engines.models.engine import Engine, EngineStart, Transition
from engines.models.gpu import GpuSample
from engines.models.host import Host, VllmEnvironment
from engines.models.model_config import ModelConfig
from engines.models.operation import Operation, OperationLine, OperationStep
from engines.models.profile import Profile, Revision
from engines.models.vllm_flags import VllmFlags

__all__ = [
    "Engine",
    "EngineStart",
    "GpuSample",
    "Host",
    "ModelConfig",
    "Operation",
    "OperationLine",
    "OperationStep",
    "Profile",
    "Revision",
    "Transition",
    "VllmEnvironment",
    "VllmFlags",
]

"""Attention heads of common models by their names, from the config.json that each is published with.

For checks while somebody types, before any host was asked for the file itself. Data only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from engines.vllm.target import Shape

#: beginning of the name's last part, in small letters -> attention heads, heads of the cache, kind
_SHAPES: Mapping[str, tuple[int, int, str]] = {
    "qwen3-0.6b": (16, 8, ""),
    "qwen3-1.7b": (16, 8, ""),
    "qwen3-4b": (32, 8, ""),
    "qwen3-8b": (32, 8, ""),
    "qwen3-14b": (40, 8, ""),
    "qwen3-32b": (64, 8, ""),
    "qwen3-30b-a3b": (32, 4, ""),
    "qwen3-coder-30b-a3b": (32, 4, ""),
    "qwen3-235b-a22b": (64, 4, ""),
    "qwen3-next-80b-a3b": (16, 2, "hybrid"),
    "qwen2.5-0.5b": (14, 2, ""),
    "qwen2.5-1.5b": (12, 2, ""),
    "qwen2.5-3b": (16, 2, ""),
    "qwen2.5-7b": (28, 4, ""),
    "qwen2.5-14b": (40, 8, ""),
    "qwen2.5-32b": (40, 8, ""),
    "qwen2.5-72b": (64, 8, ""),
    "qwen2.5-coder-7b": (28, 4, ""),
    "qwen2.5-coder-32b": (40, 8, ""),
    "qwq-32b": (40, 8, ""),
    "meta-llama-3-8b": (32, 8, ""),
    "meta-llama-3-70b": (64, 8, ""),
    "meta-llama-3.1-8b": (32, 8, ""),
    "meta-llama-3.1-70b": (64, 8, ""),
    "meta-llama-3.1-405b": (128, 8, ""),
    "llama-3.1-8b": (32, 8, ""),
    "llama-3.1-70b": (64, 8, ""),
    "llama-3.1-405b": (128, 8, ""),
    "llama-3.2-1b": (32, 8, ""),
    "llama-3.2-3b": (24, 8, ""),
    "llama-3.3-70b": (64, 8, ""),
    "llama-2-7b": (32, 32, ""),
    "llama-2-13b": (40, 40, ""),
    "llama-2-70b": (64, 8, ""),
    "mistral-7b": (32, 8, ""),
    "mixtral-8x7b": (32, 8, ""),
    "mixtral-8x22b": (48, 8, ""),
    "deepseek-v2": (128, 128, "mla"),
    "deepseek-v2-lite": (16, 16, "mla"),
    "deepseek-v2.5": (128, 128, "mla"),
    "deepseek-v3": (128, 128, "mla"),
    "deepseek-v3.1": (128, 128, "mla"),
    "deepseek-v3.2": (128, 128, "mla"),
    "deepseek-r1": (128, 128, "mla"),
    "deepseek-r1-distill-qwen-7b": (28, 4, ""),
    "deepseek-r1-distill-qwen-14b": (40, 8, ""),
    "deepseek-r1-distill-qwen-32b": (40, 8, ""),
    "deepseek-r1-distill-llama-8b": (32, 8, ""),
    "deepseek-r1-distill-llama-70b": (64, 8, ""),
    "kimi-k2": (64, 64, "mla"),
    "gpt-oss-20b": (64, 8, ""),
    "gpt-oss-120b": (64, 8, ""),
    "gemma-2-9b": (16, 8, ""),
    "gemma-2-27b": (32, 16, ""),
    "gemma-3-4b": (8, 4, ""),
    "gemma-3-12b": (16, 8, ""),
    "gemma-3-27b": (32, 16, ""),
    "phi-3-mini": (32, 32, ""),
    "phi-4": (40, 10, ""),
    "glm-4.5": (96, 8, ""),
    "glm-4.5-air": (96, 8, ""),
}
#: other models whose names begin alike: nothing is claimed of them
_UNLIKE = re.compile(r"^(deepseek-r1-distill-qwen-1|phi-4-(mini|multimodal)|deepseek-r1-0528-qwen3)")


@lru_cache(maxsize=512)
def shape_by_name(model: str) -> Shape:
    """By a Hugging Face name or a folder's name; an empty Shape if it is none of these."""
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    if _UNLIKE.match(name):
        return Shape()
    found = [key for key in _SHAPES if re.match(re.escape(key) + r"($|[-_](?!distill))", name)]
    if not found:
        return Shape()
    heads, kv_heads, attention = _SHAPES[max(found, key=len)]
    return Shape(heads, kv_heads, attention)

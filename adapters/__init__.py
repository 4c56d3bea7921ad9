"""The outside world: checkpoints, models, tokenizers, chat templates.

Nothing in a checkpoint directory is ever executed. What is wrong with its files raises
`CheckpointError`, which names file and field or tensor; an unfit argument raises
`InvalidInputError`, and what this machine or this installation lacks `UnavailableError`.
"""

from .chat_template import ChatTemplate
from .checkpoint import find_directory
from .kv_cache import KVCache
from .language_model import TransformerModel
from .loader import load_model
from .model_config import ModelConfig
from .tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "KVCache",
    "ModelConfig",
    "Tokenizer",
    "TransformerModel",
    "find_directory",
    "load_model",
]

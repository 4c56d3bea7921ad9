"""The outside world: checkpoints, models, tokenizers, chat templates.

Nothing in a checkpoint directory is ever executed. A bad file raises `CheckpointError`, which names
the file and the field or tensor; a bad argument raises `InvalidInputError`; something that this
machine or installation lacks raises `UnavailableError`.
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

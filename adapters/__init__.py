"""The outside world: checkpoints, models, tokenizers, chat templates.

Nothing in a checkpoint directory is ever executed.
"""

from .chat_template import ChatTemplate
from .hub import find_directory
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

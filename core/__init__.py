"""The core: values, policies, ports and the randomness contract. It refuses to know any backend."""

from .batch import PADDING_TOKEN_ID, SampleBatch, VerifyBatch
from .errors import (
    AcceptorError,
    CheckpointError,
    ConfigError,
    InvalidInputError,
    UnavailableError,
)
from .output import Logprobs, SampleOutput, Status, VerifyOutput
from .policies import DraftView, Policy, Probabilistic, Rule, Strict, Synthetic
from .ports import LanguageModel, Sampler
from .randomness import Level, Stream
from .sampling_params import LogprobsMode, Recipe, SamplingParams
from .sampling_tensors import SamplingTensors
from .statistics import AcceptanceStatistics
from .token_counts import TokenCounts

__all__ = [
    "PADDING_TOKEN_ID",
    "AcceptanceStatistics",
    "AcceptorError",
    "CheckpointError",
    "ConfigError",
    "DraftView",
    "InvalidInputError",
    "LanguageModel",
    "Level",
    "Logprobs",
    "LogprobsMode",
    "Policy",
    "Probabilistic",
    "Recipe",
    "Rule",
    "SampleBatch",
    "SampleOutput",
    "Sampler",
    "SamplingParams",
    "SamplingTensors",
    "Status",
    "Stream",
    "Strict",
    "Synthetic",
    "TokenCounts",
    "UnavailableError",
    "VerifyBatch",
    "VerifyOutput",
]

"""The core: values, policies, ports and the randomness contract.

Values check themselves. A number out of its range, a tensor of the wrong shape, dtype or device,
and values that do not fit together raise `InvalidInputError`, in one sentence that names the
argument; a missing CUDA device raises `UnavailableError`.
"""

from .allowed_tokens import num_mask_words, pack_allowed
from .batch import PADDING_TOKEN_ID, SampleBatch, VerifyBatch
from .call_memory import (
    check_sample_output,
    check_verify_output,
    check_workspace,
    empty_sample_output,
    empty_verify_output,
)
from .draft_inputs import chosen_logprobs, draft_rows, logits_from_probs, target_ids_from_offsets
from .errors import (
    AcceptorError,
    CheckpointError,
    ConfigError,
    InvalidInputError,
    OutOfMemoryError,
    UnavailableError,
)
from .output import Logprobs, SampleOutput, Status, VerifyOutput
from .policies import POLICIES
from .policies.likely import RelaxedTopN, Typical
from .policies.policy import DraftView, Policy, Rule
from .policies.probabilistic import Block, Probabilistic
from .policies.strict import Fly, Strict
from .policies.synthetic import Synthetic
from .ports import LanguageModel, Sampler, Scores
from .randomness import Level, Stream
from .sampling_params import LogprobsMode, Recipe, SamplingParams
from .sampling_tensors import RecipeTensors, SamplingTensors
from .statistics import AcceptanceStatistics
from .token_counts import TokenCounts

__all__ = [
    "PADDING_TOKEN_ID",
    "POLICIES",
    "AcceptanceStatistics",
    "AcceptorError",
    "Block",
    "CheckpointError",
    "ConfigError",
    "DraftView",
    "Fly",
    "InvalidInputError",
    "LanguageModel",
    "Level",
    "Logprobs",
    "LogprobsMode",
    "OutOfMemoryError",
    "Policy",
    "Probabilistic",
    "Recipe",
    "RecipeTensors",
    "RelaxedTopN",
    "Rule",
    "SampleBatch",
    "SampleOutput",
    "Sampler",
    "SamplingParams",
    "SamplingTensors",
    "Scores",
    "Status",
    "Stream",
    "Strict",
    "Synthetic",
    "TokenCounts",
    "Typical",
    "UnavailableError",
    "VerifyBatch",
    "VerifyOutput",
    "check_sample_output",
    "check_verify_output",
    "check_workspace",
    "chosen_logprobs",
    "draft_rows",
    "empty_sample_output",
    "empty_verify_output",
    "logits_from_probs",
    "num_mask_words",
    "pack_allowed",
    "target_ids_from_offsets",
]

"""The configuration of a run: models, backend, policy, sampling and decoding, checked and typed."""

from attrs import field, frozen

from ..adapters.draft_heads.head_config import MtpSwitches
from ..adapters.error_text import unfit
from ..adapters.forward_choice import FORWARDS
from ..adapters.loader import ADAPTERS
from ..adapters.model_config import DTYPES
from ..backends import BACKENDS
from ..core import InvalidInputError, Probabilistic, SamplingParams
from ..core.checks import check_integer, check_integers
from ..core.policies.parameters import choice, filled, flag, integer
from .engine.parts import Limits
from .policies import PolicySettings
from .request import DEFAULT_MAX_TOKENS

DEFAULT_NUM_SPEC_TOKENS = 4
MAX_NUM_SPEC_TOKENS = 256
"""Far beyond what pays off. Logits of drafts are stored, and a slip must not fill the memory."""

MAX_THREADS = 4096
DRAFTERS = ("model", "eagle", "eagle3", "mtp", "ngram", "early-exit")


@frozen(kw_only=True)
class ModelsConfig:
    """The models, their device and their precision.

    Attributes:
        target: a directory or hub id; None for the bundled one.
        draft: a directory or hub id; None for the bundled draft, or for none with your own target.
        dtype: float32, bfloat16 or float16; None for float32 on a CPU, the checkpoint's elsewhere.
        device: cpu, cuda or cuda:N.
        max_model_len: a context shorter than the target's own.
        num_threads: CPU threads; None for a number that suits the target's size.
        forward: auto, triton or torch: what computes decode steps on a GPU.
        adapter: auto, own or transformers: whose implementation of the models to use.

    Raises:
        InvalidInputError: a name is empty or unknown, or there are no threads.
    """

    target: str | None = filled(None)
    draft: str | None = filled(None)
    dtype: str | None = choice(None, DTYPES)
    device: str = "cpu"
    max_model_len: int | None = None
    num_threads: int | None = integer(None, 1, MAX_THREADS)
    forward: str = choice("auto", FORWARDS)
    adapter: str = choice("auto", ADAPTERS)


@frozen(kw_only=True)
class DecodingConfig:
    """How long to decode, and what the output may be.

    Attributes:
        num_spec_tokens: tokens per draft, 0 for plain decoding; None for `DEFAULT_NUM_SPEC_TOKENS`
            if there is a drafter.
        max_tokens: as in `GenerationRequest`, like `stop`, `stop_token_ids` and `ignore_eos`.
        chat: put the prompt through the target's chat template.
        json_schema: a file with a JSON schema that the output follows.
        regex: a regular expression that the output matches as a whole.

    Raises:
        InvalidInputError: a value is out of its range.
    """

    num_spec_tokens: int | None = integer(None, 0, MAX_NUM_SPEC_TOKENS)
    max_tokens: int = integer(DEFAULT_MAX_TOKENS, 1)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = flag(False)
    chat: bool = flag(False)
    json_schema: str | None = filled(None)
    regex: str | None = None

    def __attrs_post_init__(self) -> None:
        if "" in self.stop:
            raise InvalidInputError("stop: expected strings with content, got ''")
        check_integers("stop_token_ids", self.stop_token_ids, 0)
        if self.has_grammar and self.ignore_eos:
            raise InvalidInputError("ignore_eos: expected false with a grammar, got true")
        if self.json_schema is not None and self.regex is not None:
            raise unfit("regex", "none beside a json_schema", repr(self.regex), InvalidInputError)

    @property
    def has_grammar(self) -> bool:
        """Whether outputs follow a grammar."""
        return self.json_schema is not None or self.regex is not None


@frozen(kw_only=True)
class DrafterConfig(MtpSwitches):
    """The drafter and its settings.

    Attributes:
        name: one of `DRAFTERS`; None for the kind that the draft's files hold, if there are any.
        max_ngram: for ngram: how many of the last tokens are looked up first.
        min_ngram: for ngram: the fewest tokens that are looked up.
        num_layers: for early-exit: how many of the target's layers draft; None for a quarter.
        normalise_features: for mtp, like `zero_first_embedding`; see `MtpSwitches`.

    Raises:
        InvalidInputError: a value is unknown or out of its range.
    """

    name: str | None = choice(None, DRAFTERS)
    max_ngram: int = integer(3, 1)
    min_ngram: int = 1
    num_layers: int | None = integer(None, 1)

    def __attrs_post_init__(self) -> None:
        check_integer("min_ngram", self.min_ngram, 1, self.max_ngram)

    def exit_layer(self, num_layers: int) -> int:
        """How many of a target's layers draft."""
        return max(num_layers // 4, 1) if self.num_layers is None else self.num_layers


@frozen(kw_only=True)
class EngineConfig(Limits):
    """How many requests are served at once, and how their steps run.

    Attributes:
        cuda_graphs: capture the decode step on a CUDA device.
    """

    cuda_graphs: bool = flag(True)


@frozen(kw_only=True)
class Config:
    """One run.

    Attributes:
        backend: a name from `acceptor.backends.BACKENDS`.
        policy: which draft tokens survive; in a file the table names it and holds its settings.

    Raises:
        InvalidInputError: the backend is unknown.
    """

    backend: str = choice("reference", BACKENDS)
    policy: PolicySettings = field(factory=Probabilistic)
    models: ModelsConfig = field(factory=ModelsConfig)
    drafter: DrafterConfig = field(factory=DrafterConfig)
    engine: EngineConfig = field(factory=EngineConfig)
    sampling: SamplingParams = field(factory=SamplingParams)
    decoding: DecodingConfig = field(factory=DecodingConfig)

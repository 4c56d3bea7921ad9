"""What a language model says about tokens."""

from attrs import frozen
from torch import Tensor


@frozen(eq=False)
class Scores:
    """The result of `LanguageModel.forward`.

    Attributes:
        logits: [num_reqs, num_tokens, vocab_size] in the model's dtype, or [num_reqs, 1, …].
        hidden: for each tap, the hidden states after so many layers, before any later norm:
            [num_reqs, num_tokens, hidden_size] in the model's dtype.
    """

    logits: Tensor
    hidden: tuple[Tensor, ...] = ()

"""The requests of a soak, including broken bytes, masks and invalid requests."""

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import torch
from attrs import field, frozen

from acceptor.app.decoder import Decoder
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.request import GenerationRequest, GenerationResult
from acceptor.app.token_masks import NewTokenMasks
from acceptor.core import SamplingParams
from kit.toy_requests import ByLast, Failing

MAX_LEN = 24
BROKEN = "\ufffd"


@frozen(eq=False)
class Requests:
    """Draws requests, each with the result that it gets alone.

    Attributes:
        decoder: decodes them.
        grammars: the grammars of some requests.
        random: the generator.
    """

    decoder: Decoder
    grammars: Sequence[NewTokenMasks]
    random: Random
    _broken_ids: Sequence[int] = field(init=False)

    @_broken_ids.default
    def _find_broken_ids(self) -> Sequence[int]:
        """Tokens that are only a part of a character."""
        return [one for one in range(self.decoder.target.vocab_size) if self._says(one) == BROKEN]

    def _says(self, token_id: int) -> str:
        detokenizer = self.decoder.new_detokenizer()
        return detokenizer.push([token_id]) + detokenizer.finish()

    def draw(self, num_different: int) -> list[tuple[Any, GenerationResult]]:
        """Prompts or requests, each with its result in an engine of its own."""
        engine = Engine.of(self.decoder, Limits(num_slots=1, max_len=MAX_LEN))
        requests = [self._draw() for _ in range(num_different)]
        return [(request, engine.generate([request])[0]) for request in requests]

    def _draw(self) -> Any:
        vocab_size, random = self.decoder.target.vocab_size, self.random
        prompt = [random.randrange(vocab_size) for _ in range(random.choice([1, 1, 1, 2, 4]))]
        kind = random.randrange(8)
        if kind == 0:
            return random.choice([[vocab_size], [-1], [1] * MAX_LEN, [], [0.5], None, "\ud83d"])
        bias = dict[int, float]()
        if kind == 1 and random.random() < 0.5:
            bias = dict.fromkeys(range(vocab_size), -torch.inf)
        elif kind <= 3 and self._broken_ids:
            bias = dict.fromkeys(random.choices(self._broken_ids, k=8), 100.0)
        params = SamplingParams(
            seed=random.randrange(2**32),
            temperature=random.choice([0.0, 0.7, 1.0]),
            top_p=random.choice([0.9, 1.0]),
            repetition_penalty=random.choice([1.0, 1.0, 1.3]),
            logit_bias=bias,
        )
        return GenerationRequest(
            prompt_token_ids=prompt,
            params=params,
            max_tokens=random.randint(1, 8),
            num_spec_tokens=random.choice([None, 0, 2]),
            new_masks=self._draw_masks(),
        )

    def _draw_masks(self) -> NewTokenMasks | None:
        """Mostly no masks; some fail, or allow no token."""
        by_last = partial(ByLast, vocab_size=self.decoder.target.vocab_size)
        error = ValueError("no masks")
        failing = [Failing(place, error) for place in ("new_masks", "fill", "accept")]
        works: Sequence[NewTokenMasks] = [by_last, *self.grammars]
        fails: Sequence[NewTokenMasks] = [*failing, partial(by_last, dead_end=0)]
        kinds: Sequence[Sequence[NewTokenMasks | None]] = [[None], works, fails]
        return self.random.choice(self.random.choices(kinds, [6, 3, 1])[0])

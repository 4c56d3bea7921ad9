"""The steps of a batch: draft, score, process, verify, stop.

They are those of `acceptor.app.decode`, with two additions that an engine's requests do not have:
logits processors, which see the ids before every position of a draft, and stopping criteria, which
see every emitted token as if it were the last.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, evolve, field
from torch import Tensor

from ...adapters.error_text import unfit
from ...core import InvalidInputError, SamplingTensors, TokenCounts
from ..decode import DecodeStep
from ..drafter import CHUNK_LEN
from ..frontier import Frontier
from ..token_masks import StepMasks
from ..verdicts import FATAL, Draft, Verdict, pack, read_verdicts
from .support import LogitsRecipe
from .texts import Row, Texts


@define(eq=False, kw_only=True)
class Loop:
    """A batch that is being decoded.

    Attributes:
        max_length: the most tokens of a row, padding included.
        criteria: other criteria that end a row, called with ids and scores.
        streamer: gets the prompts, and each place of the output once all rows have it or have
            ended; may be None.
        keeps: which of `Texts.kept` to keep.
    """

    step: DecodeStep
    texts: Texts
    recipe: LogitsRecipe
    seeds: Sequence[int]
    max_length: int
    end_token_ids: frozenset[int]
    criteria: Callable[[Tensor, tuple[Tensor, ...] | None], Tensor] | None = None
    streamer: Any = None
    keeps: frozenset[str] = frozenset()
    _tensors: SamplingTensors | None = field(default=None, init=False)
    _counts: TokenCounts | None = field(default=None, init=False)

    def run(self) -> None:
        """Decode every row to its end.

        Raises:
            InvalidInputError: the logits of a row are invalid.
        """
        if self.streamer is not None:
            self.streamer.put(self.texts.prefix(self.texts.prompt_width).cpu())
        self._enter_prompts()
        while rows := self.texts.unfinished:
            first = min(row.width for row in rows)
            self._advance(rows)
            self._feed_streamer(first)
        if self.streamer is not None:
            self.streamer.end()

    def _enter_prompts(self) -> None:
        if self.recipe.params.has_penalties:
            self._counts = self.step.token_counts
        for row in self.texts.rows:
            if self._counts is not None:
                self._counts.start(row.index, row.token_ids)
            for start in range(0, len(row.token_ids) - 1, CHUNK_LEN):
                self.step.enter(row.index, row.token_ids, start)

    def _advance(self, rows: Sequence[Row]) -> None:
        frontier = self._frontier(rows, [self._draft_limit(row) for row in rows])
        draft = self.step.draft(frontier)
        scores = self.step.score(frontier, draft)
        self.texts.write(rows, draft.token_ids)
        judged = self._process(self.recipe.processors, rows, draft, scores.logits)
        shown = judged
        if "scores" in self.keeps:
            shown = self._process(self.recipe.mapped, rows, draft, judged)
        masks = None
        if judged is not scores.logits and not self.step.policy.lossless:
            # A policy that ignores probabilities must not emit a token that processors exclude.
            masks = StepMasks.of_each_row(judged.flatten(0, 1) > -torch.inf)
        scored = evolve(scores, logits=judged)
        output = self.step.verify(frontier, draft, scored, self._counts, masks)
        self.step.follow(frontier, draft, scores, output)
        self.texts.write(rows, output.token_ids)
        before = {row.index: row.width for row in rows}
        verdicts = read_verdicts(pack(draft, output), output)
        for place, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
            for name, given in (("logits", scores.logits), ("scores", shown)):
                if name in self.keeps:
                    self.texts.keep(name, row, given[place, : len(verdict.token_ids)])
            self._emit(row, verdict)
        self.step.drafter.notice(verdicts)
        self._ask_criteria(rows, before)
        for row, verdict in zip(rows, verdicts, strict=True):
            num_gained = row.width - before[row.index]
            row.statistics.observe(verdict.num_draft_tokens, min(verdict.num_accepted, num_gained))

    def _draft_limit(self, row: Row) -> int:
        drafter, length = self.step.drafter, len(row.token_ids)
        room = min(self.max_length - row.num_padding - 1, drafter.max_model_len) - length
        return max(0, min(room, drafter.num_spec_tokens))

    def _frontier(self, rows: Sequence[Row], limits: Sequence[int]) -> Frontier:
        known, device = {row.index: row.token_ids for row in rows}, self.step.target.device
        if self._tensors is None or self._tensors.num_reqs != len(rows):
            self._tensors = SamplingTensors.stack(
                [evolve(self.recipe.params, seed=self.seeds[slot]) for slot in known], device
            )
        return Frontier.of(known, limits, self._tensors)

    def _process(self, process: Any, rows: Sequence[Row], draft: Draft, logits: Tensor) -> Tensor:
        """Apply processors to logits [len(rows), num_tokens + 1, vocab_size].

        They are called with the whole batch, because some know its rows by number, once for every
        width at which some row is scored; the scores of the other rows are zeros.
        """
        if not process:
            return logits
        # A copy, because processors may write to it.
        processed = logits.to(torch.float32, copy=True)
        lengths = (draft.token_ids >= 0).sum(1).tolist()
        widths = [(row.width, row.width + more) for row, more in zip(rows, lengths, strict=True)]
        for width in range(min(widths)[0], max(last for _, last in widths) + 1):
            here = [at for at, (first, last) in enumerate(widths) if first <= width <= last]
            places = [width - widths[at][0] for at in here]
            slots = [rows[at].index for at in here]
            scores = processed.new_zeros((len(self.texts.rows), processed.shape[-1]))
            scores[slots] = processed[here, places]
            if here:
                processed[here, places] = process(self.texts.prefix(width), scores)[slots]
        return processed

    def _emit(self, row: Row, verdict: Verdict) -> None:
        if verdict.status & FATAL:
            expected = "logits of which one is finite and none NaN or +inf"
            raise unfit(f"row {row.index}", expected, verdict.status.name, InvalidInputError)
        for token_id in verdict.token_ids:
            row.token_ids.append(token_id)
            if token_id in self.end_token_ids or row.width >= self.max_length:
                self.texts.end(row, row.width)
                break

    def _ask_criteria(self, rows: Sequence[Row], before: Mapping[int, int]) -> None:
        if self.criteria is None:
            return
        first = min(before.values()) + 1
        for width in range(first, max(row.width for row in rows) + 1):
            new = [row for row in rows if before[row.index] < width <= row.width]
            if new:
                num_steps, scores = width - self.texts.prompt_width, None
                if "scores" in self.keeps:
                    scores = tuple(self.texts.kept["scores"][:num_steps])
                is_done = self.criteria(self.texts.prefix(width), scores).tolist()
                for row in new:
                    if is_done[row.index]:
                        self.texts.end(row, width)

    def _feed_streamer(self, first: int) -> None:
        if self.streamer is None:
            return
        last = min((row.width for row in self.texts.unfinished), default=self.texts.width)
        for column in self.texts.token_ids[:, first:last].cpu().unbind(1):
            self.streamer.put(column)

"""Pairs of models with published acceptance: their shapes, and how they were served.

Nothing here imports torch, so that help appears at once.
"""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

OF_THE_PAIR = Path()
"""Means the shapes of a pair, in place of a config.json."""

_SHAPES = Path(__file__).parent / "shapes"


@frozen
class PublicPair:
    """A target and a head for it, whose shapes are in files of these names.

    Attributes:
        drafter: the kind of head.
        head: None for a layer of the target.
        rates: published shares of draft tokens accepted through each place, at K = 3.
    """

    drafter: str
    target: str
    head: str | None
    rates: tuple[float, ...]

    @property
    def shapes(self) -> tuple[Path, Path | None]:
        """The config.json of the target, and of the head."""
        head = None if self.head is None else _SHAPES / f"{self.head}.json"
        return _SHAPES / f"{self.target}.json", head


PAIRS: Mapping[str, PublicPair] = {
    # 53.9, 26.5 and 12.8 % of drafts are accepted through each place: vLLM #46878.
    "llama3-eagle": PublicPair("eagle", "llama-3-8b", "eagle-llama-3-8b", (0.311,)),
    # 73.0, 52.1 and 35.5 %, with Llama 3.1: vLLM #32030.
    "llama3-eagle3": PublicPair("eagle3", "llama-3-8b", "eagle3-llama-3-8b", (0.535,)),
    # 65.4, 39.9 and 20.2 %: vLLM #32030.
    "qwen3-eagle3": PublicPair("eagle3", "qwen3-8b", "eagle3-qwen3-8b", (0.418,)),
    # Strict and probabilistic verification: vLLM #37238.
    "gptoss-eagle3": PublicPair("eagle3", "gpt-oss-20b", "eagle3-gpt-oss-20b", (0.426, 0.607)),
    # 75.3 % through the first place (lablup/mlxcel #1753, one prompt), 28.0 % through the second
    # (vLLM #35461); the third is assumed to fall like the second.
    "glm-mtp": PublicPair("mtp", "glm-4.7-flash", None, (0.379,)),
}

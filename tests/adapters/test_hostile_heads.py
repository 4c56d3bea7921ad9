"""Directories without a draft head, or with another target's, are an error of one line."""

import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor
from transformers import LlamaConfig

from acceptor.adapters.draft_heads.loader import find_head, load_head
from acceptor.adapters.loader import load_any_model
from acceptor.core import CheckpointError
from kit.draft_heads import SPECULATORS, TAPS, HeadFiles, eagle, eagle3
from kit.small_families import SHAPE


@pytest.fixture(scope="module")
def model(save: Callable[..., Any]) -> Any:
    return load_any_model(save(LlamaConfig(**SHAPE | {"num_hidden_layers": 7})).directory)


def without(files: HeadFiles, name: str) -> HeadFiles:
    return evolve(files, tensors={key: t for key, t in files.tensors.items() if key != name})


def beside(files: HeadFiles, **tensors: Tensor) -> HeadFiles:
    return evolve(files, tensors={**files.tensors, **tensors})


def saying(files: HeadFiles, **fields: Any) -> HeadFiles:
    return evolve(files, config={**files.config, **fields})


FEWER = eagle3(draft_vocab_size=23)
OFFSETS = FEWER.tensors["d2t"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        *(
            (without(files, "fc.weight"), "fc.weight: expected shape .*, got no such")
            for files in (eagle(), eagle3(), eagle3(nested=SPECULATORS))
        ),
        (without(FEWER, "d2t"), r"d2t: expected shape \[23\], got no such tensor"),
        (beside(eagle3(), more=torch.ones(2)), "more: expected no such tensor"),
        (
            beside(eagle3(), **{"norm.weight": torch.ones(31)}),
            r"norm.weight: expected shape \[32\], got \[31\]",
        ),
        (beside(FEWER, d2t=OFFSETS + 61), "d2t: target_ids: expected"),
        (beside(FEWER, d2t=OFFSETS - torch.arange(23)), "d2t: target_ids"),
        (eagle3(target_size=24, target_hidden_size=24), "hidden_size: expected the target's, 32"),
        (eagle3(vocab_size=60), "vocab_size: expected the target's, 61, got 60"),
        (eagle3(model_type="gpt_oss"), "model_type: expected llama or qwen3"),
        (eagle3(eagle_config={TAPS: [2, 2, 4]}), "expected different layers"),
        (eagle3(eagle_config={TAPS: [1] * 9999}), "expected different layers"),
        (eagle3(eagle_config={TAPS: [2, 3, 9]}), "expected integers from 0 to 7"),
        (eagle3(nested={}), "norm_before_residual: expected true or false, got nothing"),
        (
            saying(eagle3(nested=SPECULATORS), speculators_model_type="dflash"),
            "speculators_model_type: expected eagle3",
        ),
        (eagle(hidden_size=40), "hidden_size: expected the target's, 32, got 40"),
        (beside(eagle(), **{"fc.bias": torch.ones(32)}), "fc.bias: expected no such tensor"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_in_one_line(
    model: Any, tmp_path: Path, files: HeadFiles, said: str
) -> None:
    kind = "eagle3" if "norm.weight" in files.tensors else "eagle"
    assert find_head(files.save(tmp_path)) == kind
    with pytest.raises(CheckpointError, match=rf"^(?=.{{1,599}}\Z).*{said}"):
        load_head(tmp_path, kind, model)


class Code:
    """Code that a pickle must not run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


SPREAD = torch.ones(1, 1).expand(32, 64)
with warnings.catch_warnings(action="ignore"):
    NESTED = torch.nested.nested_tensor([torch.ones(2)])
WHOLE = "fc.weight: expected a tensor with all its values"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (Code(), "expected tensors"),
        ([torch.ones(2)], "expected tensors by name, got list"),
        ({"fc.weight": 3}, WHOLE),
        ({"fc.weight": torch.ones(32, 64).to_sparse()}, WHOLE),
        ({"fc.weight": torch.ones(32, 64, device="meta")}, WHOLE),
        ({"fc.weight": NESTED}, WHOLE),
        # One number that would become many.
        ({"fc.weight": SPREAD}, WHOLE),
    ],
)
def test_pickles_hold_tensors_by_name_or_are_refused(
    model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, said: str
) -> None:
    torch.save(content, eagle().save(tmp_path, pickled=True) / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=rf"pytorch_model.bin: {said}"):
        load_head(tmp_path, "eagle", model)
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize("in_zip", [True, False])
def test_damaged_pickles_are_refused(model: Any, tmp_path: Path, in_zip: bool) -> None:
    files = eagle()
    file = files.save(tmp_path, pickled=True) / "pytorch_model.bin"
    torch.save(dict(files.tensors), file, _use_new_zipfile_serialization=in_zip)
    whole, draw = file.read_bytes(), random.Random(3)  # noqa: S311 - damage, not a secret
    for content in (b"", b"no pickle", *(damaged(whole, draw) for _ in range(200))):
        file.write_bytes(content)
        # A number may have become another one.
        with suppress(CheckpointError):
            load_head(tmp_path, "eagle", model)
    file.write_bytes(whole)
    load_head(tmp_path, "eagle", model)


def damaged(whole: bytes, draw: random.Random) -> bytes:
    content = bytearray(whole)
    content[draw.randrange(2000)] = draw.randrange(256)
    return bytes(content)


def test_weights_that_want_gradients_are_weights(model: Any, tmp_path: Path) -> None:
    files = eagle()
    wanting = {name: torch.nn.Parameter(one) for name, one in files.tensors.items()}
    load_head(evolve(files, tensors=wanting).save(tmp_path, pickled=True), "eagle", model)


def test_a_pickle_beside_safetensors_is_not_opened(model: Any, tmp_path: Path) -> None:
    (eagle().save(tmp_path) / "pytorch_model.bin").write_bytes(b"no pickle")
    load_head(tmp_path, "eagle", model)

"""A small model's forward in one launch says what torch's operations say, for models that fit."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.model_config import ModelConfig
from acceptor.adapters.one_launch import forward, sizes
from acceptor.adapters.one_launch.launch import PROGRAM
from acceptor.adapters.random_weights import random_model
from acceptor.adapters.weights import WeightReader, expected_tensors
from kit.llama_shapes import DRAFT, TARGET
from kit.one_launch_on_host import Trial, largest_difference

META = torch.device("meta")
QWEN = DRAFT | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}


class MetaTensors:
    """Weights without values."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.entries: dict[str, Any] = {}

    def tensor(self, name: str) -> torch.Tensor:
        return torch.empty(self.shapes[name], dtype=torch.bfloat16, device=META)


def meta_model(folder: Path, shape: dict[str, Any]) -> TransformerModel:
    file = folder / "config.json"
    file.write_text(json.dumps(shape | {"num_hidden_layers": 2}), encoding="utf-8")
    config = ModelConfig.read(file)
    tensors = MetaTensors(expected_tensors(config))
    return TransformerModel(
        config, WeightReader(tensors, config, torch.bfloat16, META).decoder(), 64
    )


@pytest.mark.parametrize(
    ("shape", "fit"),
    [
        (DRAFT, True),
        (DRAFT | {"vocab_size": 1000}, False),
        (DRAFT | {"intermediate_size": 4096}, False),
        (DRAFT | {"num_key_value_heads": 4}, False),
        (TARGET, False),
        (QWEN, False),
    ],
    ids=["draft", "vocabulary", "inner size", "key heads", "target", "biases"],
)
def test_only_models_of_its_sizes_fit(tmp_path: Path, shape: dict[str, Any], fit: bool) -> None:
    model = meta_model(tmp_path, shape)
    assert sizes.fits(model.decoder, model.config.rope.table(64)) == fit


def test_a_window_does_not_fit(tmp_path: Path) -> None:
    model = meta_model(tmp_path, DRAFT)
    first, *others = model.decoder.layers
    windowed = evolve(first, attention=evolve(first.attention, window=32))
    decoder = evolve(model.decoder, layers=(windowed, *others))
    assert not sizes.fits(decoder, model.config.rope.table(64))


def test_other_devices_and_dtypes_have_none(tmp_path: Path) -> None:
    model = meta_model(tmp_path, DRAFT)
    assert forward.OneLaunch.of(model.decoder, model.config.rope.table(64)) is None
    assert not forward.can_launch(torch.device("cpu"), torch.bfloat16)
    assert not forward.can_launch(torch.device("cuda"), torch.float32)


@pytest.mark.parametrize(
    ("num_reqs", "num_tokens", "last_only", "taken"),
    [
        *((1, 1, True, True), (1, 1, False, True), (1, 2, True, True)),
        *((1, 2, False, False), (1, 3, True, False), (2, 1, True, False)),
    ],
)
def test_it_takes_one_request_of_few_tokens(
    tmp_path: Path, num_reqs: int, num_tokens: int, last_only: bool, taken: bool
) -> None:
    one = one_of(meta_model(tmp_path, DRAFT))
    one._kernels.update({1: print, 2: print})
    positions = torch.zeros(num_reqs, num_tokens, dtype=torch.int64)
    assert one.takes(positions, last_only=last_only) == taken


def test_a_kernel_that_cannot_be_launched_takes_nothing(tmp_path: Path) -> None:
    one = one_of(meta_model(tmp_path, DRAFT))
    one._kernels[1] = None
    assert not one.takes(torch.zeros(1, 1, dtype=torch.int64), last_only=True)


def test_what_it_takes_is_one_launch(tmp_path: Path) -> None:
    model = meta_model(tmp_path, DRAFT)
    one = one_of(model)
    launches: list[tuple[Any, ...]] = []
    one._kernels[2] = lambda *launch: launches.append(launch)
    object.__setattr__(model, "_one_launch", one)
    ids = torch.zeros(1, 2, dtype=torch.int64, device=META)
    cache = model.new_cache(3, 64)
    for _ in range(2):
        logits = model.forward(ids, ids, cache, ids[:, 0], last_only=True)
    assert logits.shape == (1, 1, DRAFT["vocab_size"])
    assert len(launches) == 2
    assert launches[0][:2] == (sizes.NUM_CLUSTERS * sizes.CTAS_OF_CLUSTER, sizes.THREADS)
    assert len(one._layers) == 1


def one_of(model: TransformerModel) -> forward.OneLaunch:
    empty = torch.empty(0, dtype=torch.int32, device=META)
    return forward.OneLaunch(
        decoder=model.decoder, angles=empty.bfloat16(), maps=empty, parts=empty, last_tag=empty
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_tokens", [1, 2])
def test_it_compiles_and_hardly_spills(num_tokens: int) -> None:
    pytest.importorskip("cupy_backends")
    names = sizes.macros(num_tokens, DRAFT["num_hidden_layers"], DRAFT["vocab_size"])
    code, log = PROGRAM.compile(names, "sm_90a")
    assert code
    # A few numbers that one layer keeps for the next.
    assert int(log.split(" bytes spill stores")[0].split()[-1]) <= 64
    # What threads are launched with, as setmaxnreg shares them out anew.
    assert "Used 168 registers" in log


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("num_tokens", "trials"),
    [
        (1, [Trial(300, 0), Trial(600, 2)]),
        (2, [Trial(40, 1), Trial(520, 0, same_place=True), Trial(300, 1, first_is_new=False)]),
    ],
    ids=["one token", "two tokens"],
)
def test_the_kernel_on_a_host_agrees_with_plain_operations(
    num_tokens: int, trials: list[Trial]
) -> None:
    assert largest_difference(num_tokens, trials) <= 0.02


def model_on_gpu(folder: Path, num_layers: int) -> TransformerModel:
    file = folder / "config.json"
    file.write_text(json.dumps(DRAFT | {"num_hidden_layers": num_layers}), encoding="utf-8")
    model = random_model(file, dtype=torch.bfloat16, device="cuda")
    if model._one_launch is None:
        pytest.skip("needs a Hopper with room for 15 clusters of 8 CTAs, and CuPy")
    return model


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", [1, 2])
def test_a_gpu_says_what_its_plain_operations_say(tmp_path: Path, num_tokens: int) -> None:
    model, plain = (model_on_gpu(tmp_path, 3) for _ in range(2))
    assert model._one_launch is not None
    for name in ("_kernels", "_one_launch"):
        object.__setattr__(plain, name, None)
    caches = [model.new_cache(3, 1200) for _ in range(2)]
    for ours, theirs in zip(*(cache.layers for cache in caches), strict=True):
        theirs.memory.copy_(ours.memory.normal_())
    slot = torch.tensor([1], device="cuda")
    for length in (1, 7, 300, 1100):
        token_ids = torch.randint(1024, (1, num_tokens), device="cuda")
        positions = length + torch.arange(num_tokens, device="cuda")[None]
        assert model._one_launch.takes(positions, last_only=True)
        want, got, again = (
            one.forward(token_ids, positions, cache, slot, last_only=True).float()
            for one, cache in zip((plain, model, model), (caches[0], *caches[1:] * 2), strict=True)
        )
        assert (got - want).abs().max() <= 0.05 * want.abs().max()
        assert torch.equal(got, again)
        for ours, theirs in zip(*(cache.layers for cache in caches), strict=True):
            difference = (ours.memory.float() - theirs.memory.float()).abs().max()
            assert difference <= 0.05 * ours.memory.abs().max()


@pytest.mark.gpu
def test_a_gpu_leaves_out_a_first_token_that_is_not_new(tmp_path: Path) -> None:
    model = model_on_gpu(tmp_path, 2)
    cache, slot = model.new_cache(2, 400), torch.tensor([1], device="cuda")
    ids = torch.randint(1024, (1, 2), device="cuda")
    places = 290 + torch.arange(2, device="cuda")[None]
    model.forward(ids, places, cache, slot, last_only=True)
    alone = model.forward(ids[:, 1:], places[:, 1:], cache, slot, last_only=True)
    kept = [layer.memory.clone() for layer in cache.layers]
    # Another first token changes nothing, as it is not looked at.
    other = torch.stack((ids[:, 0] + 1, ids[:, 1]), 1)
    is_new = torch.zeros(1, dtype=torch.int64, device="cuda")
    got = model.forward(other, places, cache, slot, last_only=True, first_is_new=is_new)
    assert torch.equal(got, alone)
    assert all(
        torch.equal(*pair) for pair in zip(kept, (one.memory for one in cache.layers), strict=True)
    )
    both = model.forward(other, places, cache, slot, last_only=True, first_is_new=is_new + 1)
    assert not torch.equal(both, alone)


@pytest.mark.gpu
def test_a_graph_repeats_what_its_forwards_say(tmp_path: Path) -> None:
    model = model_on_gpu(tmp_path, 2)
    cache, slot = model.new_cache(1, 400), torch.tensor([0], device="cuda")
    ids = torch.randint(1024, (1, 4), device="cuda")
    places = 290 + torch.arange(4, device="cuda")[None]

    new = torch.tensor([[1], [0]], device="cuda")

    def draft() -> list[torch.Tensor]:
        cuts = ((slice(2), new[0]), (slice(2), new[1]), (slice(2, 3), None), (slice(3, 4), None))
        return [
            model.forward(
                ids[:, cut], places[:, cut], cache, slot, last_only=True, first_is_new=is_new
            )
            for cut, is_new in cuts
        ]

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        want = draft()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            got = draft()
    for _ in range(50):
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(*pair) for pair in zip(want, got, strict=True))

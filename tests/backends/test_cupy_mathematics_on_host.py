"""The CUDA functions that carry the mathematics, built by g++, against plain formulas."""

import ctypes
import math

import pytest
import torch

from acceptor.backends.cupy_backend.variant import KernelPolicy, Variant
from acceptor.core import Typical
from acceptor.core.race import BLOCK_SIZE
from acceptor.core.randomness import Level, Stream, exponential
from acceptor.tests.kit.cuda_on_host import GXX, build_on_host
from acceptor.tests.kit.philox import word

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
u32, u64, f32, f64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float, ctypes.c_double
SIGNATURES = {
    "random_word_of": (u32, [u64, u32, u32, u32, u32, u32]),
    "exponential_of": (f32, [u32]),
    "acceptance_uniform_of": (f32, [u32]),
    "winner_of": (ctypes.c_longlong, [u64, u32, u32, u32, u32, ctypes.c_void_p]),
    "block_mass_of": (None, [ctypes.c_void_p, ctypes.c_longlong, f32, ctypes.c_void_p]),
    "accepts_at": (ctypes.c_bool, [f32, f32, f32]),
    "product_after": (f32, [f32, f32, f32]),
    "block_threshold_of": (f32, [f32, f32]),
    "typical_threshold_of": (f32, [f32, f64, f64]),
}
WORDS = (0, 1, 2, 1000, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 7, 2**32 - 300, 2**32 - 1)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    variant = Variant(KernelPolicy.STRICT, torch.float32)
    library = build_on_host("mathematics_on_host", variant, tmp_path_factory.mktemp("maths"))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def test_philox_words_are_the_contract_s(device: ctypes.CDLL) -> None:
    for i in range(300):
        seed = (0x9E3779B97F4A7C15 * (i + 1)) % 2**64
        place = (seed % 2**31, i % 4, i % 7, i % 2, 13 * i + i % 4)
        position, stream, draft_index, level, candidate = place
        expected = word(seed, position, draft_index, stream, level, candidate)
        assert device.random_word_of(seed, *place) == expected


def test_exponentials_keep_full_relative_accuracy(device: ctypes.CDLL) -> None:
    for bits in WORDS:
        u = (bits + 0.5) / 2**32
        exact = -math.log1p(-u) if bits < 2**31 else -math.log((2**32 - 0.5 - bits) / 2**32)
        assert device.exponential_of(bits) == pytest.approx(exact, rel=3e-7)


def test_acceptance_uniforms_stay_inside_the_unit_interval(device: ctypes.CDLL) -> None:
    for bits in WORDS:
        uniform = device.acceptance_uniform_of(bits)
        assert 0 < uniform < 1
        assert uniform == ((bits >> 9) + 0.5) / 2**23


@pytest.mark.parametrize("level", list(Level), ids=lambda level: level.name)
def test_races_are_won_by_the_reference_s_winner(device: ctypes.CDLL, level: Level) -> None:
    noise = torch.Generator().manual_seed(5)
    for position in range(100):
        count = 1 + position % 50
        weights = torch.randn(count, generator=noise)
        weights[torch.rand(count, generator=noise) < 0.2] = -torch.inf
        weights[0] = 0.0
        words = [word(77, position, 0, int(Stream.TARGET), int(level), 8 + i) for i in range(count)]
        scores = weights.double() - exponential(torch.tensor(words)).double().log() / math.log(2)
        winner = device.winner_of(77, position, int(level), 8, count, weights.data_ptr())
        assert winner == 8 + int(scores.argmax())


def test_a_race_without_weight_has_no_winner(device: ctypes.CDLL) -> None:
    weights = torch.full((6,), -torch.inf)
    assert device.winner_of(1, 2, int(Level.TOKEN), 0, 6, weights.data_ptr()) == -1


@pytest.mark.parametrize("count", [1, 7, 511, 512])
def test_block_masses_are_sums_of_exponentials(device: ctypes.CDLL, count: int) -> None:
    noise = torch.Generator().manual_seed(count)
    logits = 5 * torch.randn(BLOCK_SIZE, generator=noise)
    logits[0] = 3.0
    mass = torch.zeros(2)
    device.block_mass_of(logits.data_ptr(), count, 1.8, mass.data_ptr())
    inside = logits[:count].double()
    assert mass[0] == inside.max()
    expected = torch.exp2((inside - inside.max()) * 1.8).sum()
    assert float(mass[1]) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_the_mass_of_a_block_shows_what_is_wrong(device: ctypes.CDLL, bad: float) -> None:
    logits = torch.full((BLOCK_SIZE,), bad if bad == -math.inf else 0.0)
    logits[100] = bad
    mass = torch.zeros(2)
    device.block_mass_of(logits.data_ptr(), BLOCK_SIZE, 1.0, mass.data_ptr())
    assert str(float(mass[0])) == str(bad)


def test_drafts_are_accepted_with_probability_p_over_q(device: ctypes.CDLL) -> None:
    for p, q in ((0.5, 0.25), (0.1, 0.4), (0.3, 0.3), (1e-6, 1.0)):
        for uniform in (1e-7, 0.1, 0.2499, 0.2501, 0.9, 1 - 1e-7):
            accepted = device.accepts_at(uniform, math.log2(p), math.log2(q))
            assert accepted == (uniform < p / q)
    assert not device.accepts_at(1e-7, -math.inf, -math.inf)
    assert device.accepts_at(0.999, -30.0, -math.inf)


def test_products_of_ratios_are_cut_at_one_and_stay_zero(device: ctypes.CDLL) -> None:
    assert device.product_after(-1.0, -2.0, -1.0) == -2.0
    assert device.product_after(-1.0, -2.0, -4.0) == 0.0
    assert device.product_after(-1.0, -math.inf, -1.0) == -math.inf
    assert device.product_after(-math.inf, -1.0, -20.0) == -math.inf


def test_block_thresholds_are_z_over_z_plus_one_minus_p(device: ctypes.CDLL) -> None:
    for product in (1.0, 0.999, 0.5, 1e-5):
        for mass in (1e-6, 0.01, 0.3):
            expected = math.log2(mass / (mass + 1 - product))
            found = device.block_threshold_of(math.log2(product), mass)
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert device.block_threshold_of(0.0, 0.0) == 0.0
    assert device.block_threshold_of(-math.inf, 0.0) == -math.inf


def test_typical_thresholds_fall_with_entropy(device: ctypes.CDLL) -> None:
    policy = Typical()
    for entropy in (0.0, 0.5, 3.0, 11.0):
        expected = min(policy.epsilon, policy.delta * math.exp(-entropy))
        found = device.typical_threshold_of(entropy, policy.epsilon, policy.delta)
        assert found == pytest.approx(expected, rel=1e-6)

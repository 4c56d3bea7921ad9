"""Options and fixtures of the suite in `test_backend`, for `pytest -p`."""

import pytest
import torch

from ...core.ports import Sampler
from .calls import device_for, load_backend
from .findings import Findings, listing, table

FOUND = pytest.StashKey[list[Findings]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: what to test, where, and how much."""
    group = parser.getgroup("conformance of an acceptor backend")
    group.addoption("--backend", help="registered name or package.module:Class")
    group.addoption("--device", help="where it runs (default: cpu, or cuda if it needs one)")
    group.addoption(
        "--batches", type=int, default=100, help="random batches for each policy (default 100)"
    )
    group.addoption("--chunk", type=int, default=0, help="a number for other random batches")
    group.addoption("--max-vocab-size", type=int, default=10**9, help="for slow simulators")
    group.addoption("--may-wait", action="store_true", help="it may wait for a CUDA device")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was compared and every excuse."""
    terminalreporter.section("conformance")
    parts, name = config.stash.get(FOUND, []), str(config.getoption("--backend"))
    found = sum(parts, Findings())
    terminalreporter.write(table([name], [found]) + listing(found))


@pytest.fixture(scope="session")
def sampler(pytestconfig: pytest.Config) -> Sampler:
    """The backend under test."""
    name = pytestconfig.getoption("--backend")
    if name is None:
        pytest.exit("--backend: expected a registered name or package.module:Class, got nothing", 4)
    return load_backend(name)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> torch.device:
    """The device it runs on."""
    wanted = pytestconfig.getoption("--device")
    return torch.device(device_for(str(pytestconfig.getoption("--backend")), wanted))


@pytest.fixture
def found(pytestconfig: pytest.Config) -> list[Findings]:
    """The findings of all tests together; each test adds its own."""
    return pytestconfig.stash.setdefault(FOUND, [])

"""What makes up a session on a GPU, as far as a host without one can tell."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.gpu_session import __main__ as session
from kit.gpu_session.plan import benchmark, checks, compile_first, engine, proof
from kit.gpu_session.steps import Outcome, Step, run_together
from kit.sanitize.__main__ import _command, _judge
from kit.sanitize.reports import MOST_LINES, distinct

TESTS = Path(__file__).parents[1]
BACKENDS = ("triton", "cupy")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that can be run with `python -m`."""
    (tmp_path / "fine.py").write_text("print('all is fine')\n")
    (tmp_path / "broken.py").write_text("raise SystemExit(3)\n")
    # A shell's background jobs are born ignoring interrupts.
    (tmp_path / "endless.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("commands")
def test_steps_run_side_by_side_and_none_outlasts_its_time(tmp_path: Path) -> None:
    steps = [Step(name, (name,)) for name in ("fine", "broken", "endless")]
    outcomes = run_together(steps, 2.0, tmp_path)
    assert [outcome.code for outcome in outcomes] == [0, 3, None]
    assert (tmp_path / "fine.log").read_text() == "all is fine\n"
    assert "KeyboardInterrupt" in (tmp_path / "endless.log").read_text()


def test_a_session_covers_both_backends_and_every_kind_of_record(tmp_path: Path) -> None:
    steps = [*benchmark(BACKENDS, tmp_path), *checks(BACKENDS, tmp_path, 100, 16)]
    names = [step.name for step in steps]
    assert len({*names}) == len(names) == 5
    records = {Path(word).name for step in steps for word in step.arguments if ".json" in word}
    assert records == {"kernels.json", "gpu.json", "equivalence-cupy.json"}


def test_two_backends_have_one_equivalence_run_side_by_side(tmp_path: Path) -> None:
    both, one = (checks(some, tmp_path, 100, 16)[1].arguments for some in (BACKENDS, BACKENDS[:1]))
    assert both[3:7] == ("--backend", "cupy", "--beside", "triton")
    assert one[3:5] == ("--backend", "triton")
    assert "--beside" not in one


ASK_FOR_HELP = """
import json, runpy, sys

for module, *arguments in json.loads(sys.argv[1]):
    sys.argv = [module, *arguments, "--help"]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, (module, end.code)
    else:
        raise AssertionError(module)
print("all know them")
"""


@pytest.mark.slow
def test_its_commands_know_their_arguments(tmp_path: Path) -> None:
    everything = [*compile_first(BACKENDS), *benchmark(BACKENDS, tmp_path)]
    everything += [*engine(BACKENDS, tmp_path), *proof(BACKENDS, tmp_path, 300)]
    everything += checks(BACKENDS, tmp_path, 100, 16)
    firsts = {step.arguments[0]: step for step in everything}
    commands = json.dumps([step.arguments for step in firsts.values()])
    # One process for all, as each would import the same again.
    finished = subprocess.run(
        [sys.executable, "-c", ASK_FOR_HELP, commands],
        cwd=TESTS.parent, env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert finished.stdout.endswith("all know them\n"), finished.stderr[-1000:]


@pytest.mark.parametrize(
    ("tool", "output", "findings", "clean"),
    [
        ("none", "12 calls, 0 differ\n", 0, True),
        ("none", "12 calls, 1 differ\n", 0, False),
        ("none", "Traceback", None, False),
        ("memcheck", "12 calls, 0 differ\n========= ERROR SUMMARY: 0 errors\n", 0, True),
        ("memcheck", "12 calls, 0 differ\n========= ERROR SUMMARY: 66 errors\n", 66, False),
        ("memcheck", "========= ERROR SUMMARY: 0 errors\n", 0, False),
        ("racecheck", "9 calls, 0 differ\n= RACECHECK SUMMARY: 2 hazards displayed", 2, False),
        ("racecheck", "not done after 60 s", None, False),
    ],
)
def test_a_tool_is_clean_only_if_it_ended_and_found_nothing(
    tool: str, output: str, findings: int | None, *, clean: bool
) -> None:
    outcome = _judge(tool, output, 1.0)
    assert outcome.findings == findings
    assert outcome.is_clean is clean
    assert bool(outcome.said) is not clean


@pytest.mark.parametrize(
    ("tool", "told"),
    [("none", False), ("memcheck", False), ("racecheck", True), ("synccheck", True)],
)
def test_tools_that_count_mbarriers_are_told_how_many_there_are(tool: str, *, told: bool) -> None:
    command = _command("cupy", tool, "strict")
    assert (("--num-cuda-barriers", "32") in itertools.pairwise(command)) is told
    assert command[-4:] == ["-m", "kit.sanitize.subset", "cupy", "strict"]


def race(offset: int, hazards: int) -> str:
    read, write = f"narrow+{offset:#x}", f"narrow+{offset + 16:#x}"
    return (
        f"========= Warning: Race reported between Read access at {read}\n"
        f"=========     and Write access at {write} [{hazards} hazards]\n=========\n"
    )


def test_what_a_tool_repeats_leaves_room_for_what_else_it_says() -> None:
    access = "".join(
        f"========= Invalid __global__ read of size 4 bytes\n=========     at narrow+0x120\n"
        f"=========     by thread ({thread},0,0) in block (0,0,0)\n"
        f"=========     Address {hex(4096 + thread)} is out of bounds\n"
        f"=========     Saved host backtrace up to driver entry point\n"
        for thread in range(50)
    )
    output = access + "".join(race(64, count) for count in range(99)) + race(4096, 1)
    first, *_, others, both, other, its = distinct(output + "ValueError: it ended so\n")[:-1]
    assert first == "50 times: ========= Invalid __global__ read of size 4 bytes"
    assert others == "99 times: ========= Warning: Race reported between Read access at narrow+0x40"
    assert both == "=========     and Write access at narrow+0x50 [0 hazards]"
    assert f"{other}\n{its}\n=========\n" == race(4096, 1)
    assert distinct(output + "ValueError: it ended so\n")[-1] == "ValueError: it ended so"


def test_a_record_of_what_a_tool_said_stays_short() -> None:
    assert len(distinct("".join(race(offset, 1) for offset in range(1000)))) == MOST_LINES


def test_the_law_is_sampled_for_each_backend_within_a_share_of_the_time(tmp_path: Path) -> None:
    [long], [short] = (proof(BACKENDS, tmp_path, seconds) for seconds in (1000, 100))
    for backend in BACKENDS:
        assert ("--backend", backend) in itertools.pairwise(long.arguments)
    assert ("--seconds", "60") in itertools.pairwise(long.arguments)
    assert ("--seconds", "20") in itertools.pairwise(short.arguments)


def test_a_session_has_the_parts_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    def keep(steps: list[Step], *_: object) -> list[Outcome]:
        began.extend(step.name.partition("-")[0] for step in steps)
        return [Outcome(step.name, 0, 1.0) for step in steps]

    monkeypatch.setattr(session, "run_together", keep)
    for parts, names in (
        ((), ["compile"] * 12 + ["kernels", "engine", "proof", "gpu", "equivalence"]),
        (("checks",), ["gpu", "equivalence"]),
        (("engine", "benchmark"), ["compile"] * 12 + ["kernels", "engine"]),
    ):
        began.clear()
        chosen = [word for part in parts for word in ("--part", part)]
        folders = ["--folder", str(tmp_path), "--logs", str(tmp_path / "logs")]
        monkeypatch.setattr(sys, "argv", ["gpu_session", *folders, *chosen])
        assert session.main() == 0
        assert [name for name in began if name != "sanitize"] == names

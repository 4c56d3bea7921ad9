"""What `make gpu` runs and records, as far as a host without a GPU can tell."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit import gpu
from kit.gpu import Part, keep, main, parts, run_part
from kit.sanitize import command_of, judge

TESTS = Path(__file__).parents[1]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that can be run with `python -m`."""
    (tmp_path / "fine.py").write_text("print('found 3\\nall is fine')\n")
    (tmp_path / "broken.py").write_text("raise SystemExit(3)\n")
    # A shell's background jobs are born ignoring interrupts.
    (tmp_path / "endless.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize(
    ("module", "outcome", "said"),
    [
        ("fine", "passed", ["found 3"]),
        ("broken", "failed, exit code 3", []),
        ("endless", "out of time", None),
    ],
)
def test_a_part_ends_in_time_and_tells(
    module: str, outcome: str, said: list[str] | None, tmp_path: Path
) -> None:
    found = run_part(Part("some part", (module,), 1.5, "found"), tmp_path)
    assert found["outcome"] == outcome
    assert said is None or found["said"] == said


@pytest.mark.usefixtures("commands")
def test_the_record_is_written_after_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [Part("kernels", ("fine",), 9, "found", alone=True), Part("tests", ("broken",), 9, "x")]
    monkeypatch.setattr(gpu, "parts", lambda _: some)
    path = tmp_path / "gpu.json"
    earlier = {"machine": {"device": "a"}, "date": "b", "outcome": "c", "seconds": 1, "said": []}
    keep(path, "proof", earlier)
    where = ["--out", str(tmp_path), "--logs", str(tmp_path / "logs")]
    assert main([*where, "--part", "kernels"]) == 0
    assert main(where) == 1
    assert "tests: failed, exit code 3" in capsys.readouterr().out
    record = json.loads(path.read_text())
    assert [*record] == ["kernels", "proof", "tests"]
    assert record["kernels"]["machine"]["torch"]
    assert "| found 3 |" in path.with_suffix(".md").read_text()


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
def test_all_commands_know_their_arguments() -> None:
    wanted = gpu._parser().parse_args(["--backend", "triton", "--backend", "cupy"])
    everything = parts(wanted)
    assert {part.name.partition(" ")[0] for part in everything} == {*gpu.PARTS}
    together = [part.seconds for part in everything if not part.alone]
    assert sum(part.seconds for part in everything if part.alone) + max(together) <= 600
    commands = [part.command for part in everything]
    commands.append(tuple(command_of("cupy", "none", 9, 60.0)[2:]))
    # One process for all, as each would import the same again.
    finished = subprocess.run(
        [sys.executable, "-c", ASK_FOR_HELP, json.dumps(commands)],
        cwd=TESTS.parent, env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert finished.stdout.endswith("all know them\n"), finished.stderr[-1000:]


ENDED = "0 s\nconformant\n"


@pytest.mark.parametrize(
    ("tool", "output", "findings", "clean"),
    [
        ("none", ENDED, 0, True),
        ("none", "NOT conformant\n", None, False),
        ("memcheck", ENDED + "========= ERROR SUMMARY: 0 errors\n", 0, True),
        ("memcheck", ENDED + "========= ERROR SUMMARY: 66 errors\n", 66, False),
        ("memcheck", "========= ERROR SUMMARY: 0 errors\n", 0, False),
        ("racecheck", ENDED + "= RACECHECK SUMMARY: 2 hazards displayed", 2, False),
        ("racecheck", "", None, False),
    ],
)
def test_a_tool_is_clean_only_if_it_ended_and_found_nothing(
    tool: str, output: str, findings: int | None, *, clean: bool
) -> None:
    outcome = judge(tool, output, 1.0)
    assert outcome.findings == findings
    assert outcome.is_clean is clean


def test_what_a_tool_repeats_is_told_once() -> None:
    access = "".join(
        f"========= Invalid __global__ read of size 4 bytes by thread ({thread},0,0)\n"
        f"=========     at narrow+0x120\n"
        for thread in range(50)
    )
    outcome = judge("memcheck", access + "========= ERROR SUMMARY: 50 errors\n", 1.0)
    assert outcome.reports == ("50 times: Invalid __global__ read of size 4 bytes by thread ...",)
    assert "no end" in str(judge("memcheck", "", 1.0))


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_tools_that_count_mbarriers_are_told_how_many_there_are(tool: str) -> None:
    command = command_of("cupy", tool, 9, 60.0)
    assert (("--num-cuda-barriers", "32") in itertools.pairwise(command)) == (tool != "memcheck")

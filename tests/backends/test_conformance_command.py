"""The conformance kit from outside: its command, its suite, its reports and its errors."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings

from acceptor.backends.conformance import (
    Case,
    Difference,
    Tally,
    cases,
    first_failure,
    load_backend,
    run_case,
)
from acceptor.backends.conformance.__main__ import main
from acceptor.backends.conformance.beside import Beside
from acceptor.backends.conformance.loading import device_for
from acceptor.backends.conformance.record import Record, Share
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import Policy, SamplingTensors, UnavailableError, VerifyBatch, VerifyOutput

CPU = torch.device("cpu")
OPTIONS = ["--batches", "12", "--max-vocab-size", "40"]
REFERENCE = ["--backend", "reference", *OPTIONS]


class Broken(ReferenceSampler):
    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        if batch.num_reqs > 1 and "strict" in policy.name:
            raise RuntimeError("out of luck")
        return super().verify(batch, params, policy, **memory)


@given(cases())
@settings(max_examples=30)
def test_a_case_survives_being_written_down(case: Case) -> None:
    assert Case.from_json(case.to_json()) == case


def test_a_conformant_backend_ends_with_0_and_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    assert main([*REFERENCE, "--json", str(path)]) == 0
    assert capsys.readouterr().out.endswith("\nconformant\n")
    record = json.loads(path.read_text())
    assert record["is_conformant"]
    assert record["tally"]["num_batches"] > 12
    assert record["tally"]["failures"] == []
    assert record["machines"] != []
    assert "| unexplained | 0 |" in path.with_suffix(".md").read_text()


def test_a_device_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([*REFERENCE, "--device", "cuda:1"]) == 2
    assert capsys.readouterr().err == "--device: expected one that is there, got cuda:1\n"


def test_backends_run_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("triton", None) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for("triton", None) == device_for("cupy", None) == "cuda"
    assert device_for("reference", None) == device_for("some.module:Backend", None) == "cpu"
    assert device_for("triton", "cpu") == "cpu"


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    main([*REFERENCE, "--json", str(path)])
    before = Record.read(path)
    assert main([*REFERENCE, "--json", str(path), "--continue"]) == 0
    after = Record.read(path)
    assert (before.chunks, after.chunks) == ((0,), (0, 1))
    assert after.tally.num_batches == before.tally.num_batches + 12


def test_a_run_adds_what_a_record_lacks(tmp_path: Path) -> None:
    elsewhere = Share("a toaster", {"hypothesis": "0.1"}, (1, 5))
    record = Record("reference", "cpu", (elsewhere,), Tally(num_batches=4000))
    record = record.including(2, Tally()).including(0, Tally())
    # A chunk's number stands for its batches only under the same version of Hypothesis.
    assert record.shares == (elsewhere, evolve(Share.here("cpu"), chunks=(0, 2)))
    assert record.missing(0, 3) == [3, 4, 6]
    assert record.missing(7, 2) == [7, 8]
    path = tmp_path / "record.json"
    record.write(path)
    assert Record.read(path) == record


def test_a_record_keeps_what_a_second_backend_gave(tmp_path: Path) -> None:
    record = Record("reference", "cpu", (), Tally(), Beside("other"))
    near = ("a case", Difference(0, 1, "acceptance", "1", "2", 1e-7, excused=True))
    between = Tally(num_batches=2, near_ties=Counter(acceptance=1), excuses=[near])
    record = record.including(4, Tally(num_batches=2), Tally(num_batches=2), between)
    path = tmp_path / "record.json"
    record.write(path)
    assert Record.read(path) == record
    assert record.is_conformant
    failed = record.including(5, Tally(), Tally(), Tally(failures=[near]))
    assert not failed.is_conformant
    lacking = record.including(5, Tally(), Tally(failures=[near]), Tally())
    assert not lacking.is_conformant


def test_records_of_one_backend_are_read_as_before() -> None:
    record = Record.read(Path(__file__).parents[2] / "docs" / "data" / "conformance-reference.json")
    assert record.beside is None
    assert record.is_conformant
    assert record.tally.num_batches > 10_000


def test_a_second_backend_that_was_compared_in_nothing_does_not_conform() -> None:
    assert not Beside("other", Tally(num_batches=1)).is_conformant


def test_the_record_of_another_backend_is_not_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    main([*REFERENCE, "--json", str(path)])
    of_another = ["--backend", "kit.only_strict:OnlyStrict", *OPTIONS]
    assert main([*of_another, "--json", str(path), "--continue"]) == 2
    assert "expected a record of" in capsys.readouterr().err


def test_the_record_of_two_backends_is_not_continued_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    beside = Beside("other", Tally(num_batches=1), Tally(num_batches=1))
    Record("reference", "cpu", (), Tally(num_batches=1), beside).write(path)
    assert main([*REFERENCE, "--json", str(path), "--continue"]) == 2
    assert "expected a record of one backend" in capsys.readouterr().err


def test_a_policy_that_a_backend_lacks_is_counted_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lacking = ["--backend", "kit.only_strict:OnlyStrict", *OPTIONS]
    assert main([*lacking, "--policy", "block", "--policy", "strict"]) == 0
    assert "unsupported" in capsys.readouterr().out


def test_a_crash_is_reported_with_the_smallest_case_that_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = ["--backend", f"{__name__}:Broken", *OPTIONS]
    assert main([*broken, "--policy", "strict"]) == 1
    printed = capsys.readouterr().out
    assert printed.endswith("\nNOT conformant\n")
    report = next(line for line in printed.splitlines() if line.startswith("--case"))
    case = Case.from_json(report.removeprefix("--case '").removesuffix("'"))
    assert case.num_draft_tokens == (0, 0)
    assert case.features == frozenset()
    assert main([*broken, "--case", case.to_json()]) == 1
    assert "RuntimeError: out of luck" in capsys.readouterr().out


def test_shrinking_keeps_what_fails() -> None:
    failure = first_failure(Broken(), CPU, 0, 50, cases(largest_vocabulary=40))
    assert failure is not None
    again = run_case(failure.case, Broken(), CPU)
    assert again is not None
    assert again.unexplained == failure.differences


@pytest.mark.parametrize("name", ["nobody", "acceptor.nowhere:Sampler", "acceptor.core:Nothing"])
def test_an_unknown_backend_is_an_error(name: str) -> None:
    with pytest.raises(UnavailableError, match="backend"):
        load_backend(name)


def test_without_hypothesis_the_kit_says_how_to_get_it() -> None:
    program = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'hypothesis' else find(name, *rest)\n"
        "import acceptor.backends.conformance"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "UnavailableError: conformance: needs hypothesis; install with: pip" in finished.stderr


def test_pytest_holds_a_backend_to_the_contract(tmp_path: Path) -> None:
    # As others have it: in a folder of the package's name, which that of a clone need not be.
    (tmp_path / "acceptor").symlink_to(Path(__file__).parents[2])
    command = [sys.executable, "-m", "pytest", "-p", "acceptor.backends.conformance.pytest_plugin"]
    command += ["--pyargs", "acceptor.backends.conformance", "--backend", "reference"]
    command += ["--batches", "3", "--max-vocab-size", "40", "-k", "random or refused", "-q"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout
    assert " passed" in finished.stdout
    assert "unexplained" in finished.stdout

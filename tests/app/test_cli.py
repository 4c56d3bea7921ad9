"""The command line as people and machines meet it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from attrs import evolve

from acceptor.app.__main__ import main as begin
from acceptor.app.cli import main
from acceptor.app.commands import read_config
from acceptor.app.policies import SyntheticSettings
from acceptor.app.report import new_console
from acceptor.backends import BACKENDS, Backend
from acceptor.core import POLICIES, InvalidInputError, Typical

STATS = (
    "num_drafts num_draft_tokens num_accepted_tokens acceptance_rate acceptance_length "
    "acceptance_rate_per_pos tokens_per_second policy lossless total_variation backend "
    "forward"
)
LOSSY = {policy.name for policy in POLICIES.values() if not policy.lossless}
Acceptor = Callable[..., tuple[int | str, str, str]]
QUICK = ["generate", "--prompt", "The old house stood", "--max-tokens", "24", "--seed", "7"]


def test_json_is_one_object_and_nothing_else(acceptor: Acceptor) -> None:
    code, out, err = acceptor(*QUICK, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert " ".join(answer) == "text token_ids finish_reason error seed stats memory_bytes"
    assert " ".join(answer["stats"]) == STATS
    assert len(answer["token_ids"]) == 24
    assert (answer["finish_reason"], answer["error"], answer["seed"]) == ("length", None, 7)
    stats = answer["stats"]
    assert stats["acceptance_rate"] == stats["num_accepted_tokens"] / stats["num_draft_tokens"]
    assert len(stats["acceptance_rate_per_pos"]) == 4
    assert stats["tokens_per_second"] > 0


def test_plain_decoding_makes_no_drafts_and_says_the_same_under_strict(acceptor: Acceptor) -> None:
    plain = json.loads(acceptor(*QUICK, "--json", "--num-spec-tokens", "0")[1])
    strict = json.loads(acceptor(*QUICK, "--json", "--policy", "strict")[1])
    assert plain["stats"]["num_drafts"] == 0
    assert plain["stats"]["acceptance_rate_per_pos"] == []
    assert strict["stats"]["num_drafts"] > 0
    assert plain["token_ids"] == strict["token_ids"]
    assert plain["text"] == strict["text"]


def test_people_see_prompt_text_and_a_table(acceptor: Acceptor) -> None:
    code, out, err = acceptor(*QUICK, "--compare-plain")
    text, table = out.rsplit("\n\n", 1)
    rows = dict(line.split("  ", 1) for line in table.splitlines())
    assert (code, err) == (0, "")
    assert text == "The old house stood" + json.loads(acceptor(*QUICK, "--json")[1])["text"]
    assert ", ".join(rows) == (
        "tokens/s, plain tokens/s, speed-up, acceptance rate, acceptance length, "
        "rate per position, policy, backend, forward, seed, ended by"
    )
    assert rows["policy"].split() == ["probabilistic", "(lossless)"]
    assert rows["seed"].strip() == "7"


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_can_be_chosen(acceptor: Acceptor, name: str) -> None:
    # A synthetic rate alone names the policy.
    chosen = ("--synthetic-acceptance-rate", "0.5") if name == "synthetic" else ("--policy", name)
    code, out, _ = acceptor(*QUICK, "--max-tokens", "8", *chosen)
    assert code == 0
    assert f"{name} ({'lossy' if name in LOSSY else 'lossless'})" in out
    assert ("total variation" in out) == (name in LOSSY - {"synthetic"})


def test_flags_win_over_the_file(acceptor: Acceptor, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "[policy]\nname = 'typical'\nepsilon = 0.2\n"
        "[sampling]\nseed = 3\ntemperature = 0.5\n"
        "[decoding]\nmax_tokens = 6\nnum_spec_tokens = 2\n"
    )
    arguments = ["generate", "--prompt", "A", "--config", file]
    answer = json.loads(acceptor(*arguments, "--json")[1])
    assert (answer["seed"], len(answer["token_ids"])) == (3, 6)
    assert len(answer["stats"]["acceptance_rate_per_pos"]) == 2
    answer = json.loads(acceptor(*arguments, "--json", "--max-tokens", "5", "--seed", "4")[1])
    assert (answer["seed"], len(answer["token_ids"])) == (4, 5)
    assert "block (lossless)" in acceptor(*arguments, "--policy", "block")[1]
    assert read_config(file, {"policy.name": "typical"}).policy == Typical(epsilon=0.2)
    file.write_text("[policy]\nname = 'synthetic'\nrates = [0.5]\n")
    assert read_config(file, {"policy.name": "synthetic"}).policy == SyntheticSettings(rates=(0.5,))
    by_rate = read_config(file, {"policy.acceptance_rate": 1.0}).policy
    assert by_rate == SyntheticSettings(acceptance_rate=1.0)
    file.write_text("policy = 'block'\n")
    assert "policy: expected a table, got 'block'" in acceptor(*arguments, "--policy", "strict")[2]


def test_json_has_logprobs_if_the_file_asks_for_them(acceptor: Acceptor, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[sampling]\nlogprobs = 2\nlogprobs_mode = 'processed'\ntop_k = 1\n")
    answer = json.loads(acceptor(*QUICK, "--json", "--config", str(file))[1])
    assert len(answer["logprobs"]) == 24
    for token_id, entry in zip(answer["token_ids"], answer["logprobs"], strict=True):
        assert entry["logprob"] == 0
        assert entry["top"][0] == [token_id, 0]
        assert entry["top"][1][1] is None


def test_a_stop_string_ends_the_text_before_it(acceptor: Acceptor) -> None:
    endless = json.loads(acceptor(*QUICK, "--json")[1])["text"]
    stop = endless[10:13]
    answer = json.loads(acceptor(*QUICK, "--json", "--stop", stop, "--stop", "no such text")[1])
    assert answer["text"] == endless[: endless.index(stop)]
    assert answer["finish_reason"] == "stop"


def test_only_terminals_have_colours(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in acceptor(*QUICK)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = acceptor(*QUICK)[1]
    assert "\x1b[32m" in coloured
    assert "accepted" in coloured.splitlines()[-1]
    # Escapes of a prompt or a model are shown, not obeyed, and tabs stay.
    escaped = acceptor("generate", "--prompt", "a\x1b[31m\tb\x9b", "--max-tokens", "1")[1]
    assert "a\N{SYMBOL FOR ESCAPE}[31m\tb\ufffd" in escaped


def test_backends_says_what_is_installed(acceptor: Acceptor) -> None:
    code, out, err = acceptor("backends")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["reference", "installed"] in [words[:2] for words in lines]
    assert ["forward", "triton", "unusable:"] in [words[:3] for words in lines]


def test_what_lacks_a_device_says_so(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = evolve(BACKENDS["reference"], needs_cuda=True)
    monkeypatch.setattr("acceptor.app.commands.BACKENDS", {"reference": lacking})
    assert "installed; expects a CUDA" in acceptor("backends")[1]


def test_a_missing_module_is_named(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Backend("lost", "no_such\x1b[31m:Sampler", "from other", requires=("no_such\x1b[31m",))
    monkeypatch.setattr("acceptor.app.commands.BACKENDS", {"lost": lost})
    words = acceptor("backends")[1].split()
    assert words[:4] == ["lost", "missing", "no_such\N{SYMBOL FOR ESCAPE}[31m", "from"]


def test_an_error_has_its_own_line(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InvalidInputError("logits: expected a CUDA device, got cpu")

    monkeypatch.setattr("acceptor.app.report.measure", fail)
    code, out, err = acceptor("generate", "--prompt", "ROMEO:", "--max-tokens", "1")
    assert (code, out) == (2, "ROMEO:\n")
    assert err == "acceptor: logits: expected a CUDA device, got cpu\n"


def test_what_ended_a_run_is_told(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    full = torch.OutOfMemoryError("Tried to allocate 3 GiB")
    monkeypatch.setattr("acceptor.app.engine.runner.read_verdicts", Mock(side_effect=full))
    code, out, _ = acceptor(*QUICK)
    said = "request: expected 3 GiB on cpu, got less; lower num_slots"
    assert (code, f"ended by error: {said}" in " ".join(out.split())) == (1, True)
    assert said in json.loads(acceptor(*QUICK, "--json")[1])["error"]


def test_a_backend_without_its_device_says_so_before_the_prompt(acceptor: Acceptor) -> None:
    pytest.importorskip("cupy")
    code, out, err = acceptor("generate", "--prompt", "ROMEO:", "--backend", "cupy")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err == "acceptor: backend cupy: expected a CUDA device, got cpu\n"


def test_text_in_brackets_is_printed(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = evolve(BACKENDS["triton"], requires=("no_such_module",))
    monkeypatch.setattr("acceptor.app.commands.BACKENDS", {"triton": lacking})
    assert "pip install 'acceptor[triton]'" in " ".join(acceptor("backends")[1].split())
    _, out, _ = acceptor("generate", "--prompt", "[/x] :dog:", "--max-tokens", "1")
    assert out.startswith("[/x] :dog:")


def test_a_forward_can_be_chosen(acceptor: Acceptor) -> None:
    answer = json.loads(acceptor(*QUICK, "--json", "--max-tokens", "2", "--forward", "torch")[1])
    assert answer["stats"]["forward"] == "torch"
    for name, message in (
        ("triton", "forward triton: expected a CUDA device, got cpu"),
        ("cuda", "forward: expected one of auto, triton, torch, got"),
    ):
        code, out, err = acceptor(*QUICK, "--forward", name)
        assert (code, out) == (2, "")
        assert message in err


def test_model_code_can_be_chosen(acceptor: Acceptor, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[models]\nadapter = "transformers"\n')
    asked = (*QUICK, "--json", "--temperature", "0", "--max-tokens", "5")
    own, by_file, by_flag = (
        json.loads(acceptor(*asked, *flags)[1])
        for flags in ((), ("--config", file), ("--model-adapter", "transformers"))
    )
    assert own["text"] == by_file["text"] == by_flag["text"]
    ran = [answer["stats"]["forward"] for answer in (own, by_file, by_flag)]
    assert ran == ["torch", "transformers", "transformers"]


def test_help_is_there_without_torch_and_names_every_policy_and_backend(acceptor: Acceptor) -> None:
    program = (
        "import sys\nfrom acceptor.app.cli import main\n"
        "try: main(['--help'])\nfinally: print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, check=False).stdout.endswith(b"False\n")
    code, _, err = acceptor()
    assert (code, "generate" in err) == (2, True)
    _, out, _ = acceptor("generate", "--help")
    assert "|".join(POLICIES) in out
    assert "lossy: typical, relaxed, fly, synthetic]" in " ".join(out.split())
    assert "[reference" in out


def test_an_interrupt_ends_it_cleanly(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptor.app.commands.make_request", Mock(side_effect=KeyboardInterrupt))
    code, _, err = acceptor(*QUICK)
    assert (code, err.split("\n")) == (130, ["", "acceptor: interrupted", ""])


class Interrupted:
    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


def test_so_does_one_that_comes_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acceptor.app.cli", Interrupted())
    with pytest.raises(SystemExit, match="130"):
        begin()


def test_the_module_runs_as_a_program_and_a_closed_pipe_ends_it_quietly() -> None:
    command = [sys.executable, "-m", "acceptor.app.cli", *QUICK, "--max-tokens", "100"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(7) == "The old"
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_terminal_obeys_nothing_that_an_error_quotes(complaint: Callable[..., str]) -> None:
    said = complaint("generate", "--prompt", "x", "--target", "/no\x1b[31mred\x07\u202e")
    assert said.startswith(r"/no\x1b[31mred\x07\u202e: expected")


def test_output_that_finds_no_room_is_one_line() -> None:
    command = [sys.executable, "-m", "acceptor.app.cli", "--help"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    message = "acceptor: output: expected room for it, got No space left on device\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_what_a_terminal_has_no_character_for_is_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    output = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(output, encoding="ascii"))
    with pytest.raises(SystemExit, match=r"^$"):
        main(["generate", "--prompt", "é", "--max-tokens", "2"])
    sys.stdout.flush()
    assert output.getvalue().startswith(b"\\xe9")


@pytest.mark.parametrize("columns", ["0", "1", "80"])
def test_no_text_is_lost_in_a_pipe(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However narrow the environment says that it is."""
    monkeypatch.setenv("COLUMNS", columns)
    new_console().print("ROMEO: [b]Come")
    assert capsys.readouterr().out.split() == ["ROMEO:", "[b]Come"]

"""Every bad input: one line on stderr that names the flag, field or file, and exit code 2."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from acceptor.app.bundled import bundled_pair
from kit.checkpoints import edit_tensors, keep_ids

GENERATE = ["generate", "--prompt", "A", "--max-tokens", "4"]
Acceptor = Callable[..., tuple[int | str, str, str]]
Complaint = Callable[..., str]
CopyOf = Callable[[Path], Path]
TARGET, DRAFT = bundled_pair()
RATE, SYNTHETIC = "--synthetic-acceptance-rate", "[policy]\nname = 'synthetic'\n"


@pytest.fixture
def copy_of(tmp_path: Path) -> CopyOf:
    """A checkpoint directory that may be damaged."""

    def copy(directory: Path) -> Path:
        return Path(shutil.copytree(directory, tmp_path / directory.name))

    return copy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "-1"], "--temperature: expected a number in [0, 1000000.0], got -1.0"),
        (["--top-p", "0"], "--top-p: expected a number in (0, 1], got 0.0"),
        (["--max-tokens", "0"], "--max-tokens: expected a number in [1, inf), got 0"),
        (["--threads", "0"], "--threads: expected a number in [1, 4096], got 0"),
        (["--stop", ""], "--stop: expected strings with content, got ''"),
        (["--backend", "fast"], "--backend: expected one of reference, "),
        (["--policy", "best"], "--policy: expected one of probabilistic, block, strict, "),
        (["--policy", "synthetic"], f"--policy: expected {RATE} beside synthetic"),
        (["--policy", "strict", RATE, "1"], f"{RATE}: expected the policy synthetic, got strict"),
        (["--dtype", "int8"], "--dtype: expected one of float32, bfloat16, float16, got 'int8'"),
        (["--device", "cuda:99999999999"], "--device: expected cpu or cuda, got 'cuda:9999999999"),
        (["--device", "meta"], "--device: expected cpu or cuda, got "),
        (
            ["--target", "/no/such/place"],
            "/no/such/place: expected a directory or a hub id, got nothing there",
        ),
        (["--target", __file__], f"{__file__}: expected a directory or a hub id, got a file"),
        (
            ["--draft", "/no/such/place"],
            "--draft: expected a target beside it, got only /no/such/place",
        ),
        (["--target", ""], "--target: expected a string with content, got ''"),
        (["--json-schema", ""], "--json-schema: expected a string with content, got ''"),
        (
            ["--target", TARGET, "--num-spec-tokens", "3"],
            "--num-spec-tokens: expected 0, or --draft or --drafter beside it, got 3",
        ),
        (["--prompt", "cut \ud83d"], "--prompt: expected text that UTF-8 can hold, got '\\ud83d'"),
        (["--chat"], f"--chat: expected a chat template in {TARGET}, got none"),
        (["--no-such-flag"], "No such option"),
        (["--prompt", "word " * 1100], "--prompt: expected fewer than the 1024 tokens that a re"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else None,
)
def test_flags(complaint: Complaint, arguments: list[object], message: str) -> None:
    assert complaint(*GENERATE, *arguments).startswith(message)


GPT_OSS, NINES = "bench --pair gptoss-eagle3 --random-weights", 20 * "9"
RANDOM, KERNELS = "bench --random-weights large.json", "bench kernels --device cpu"


@pytest.mark.usefixtures("tiny_shapes")
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("generate", "Missing option '--prompt'."),
        ("translate", "No such command 'translate'"),
        (f"{RANDOM} --drafter model", "--drafter: expected --draft-random-weights beside model"),
        (f"{RANDOM} --drafter eagle3", "--drafter: expected --draft-random-weights beside eagle3"),
        (f"{RANDOM} --drafter mtp", "drafter mtp: expected the model adapter transformers"),
        (f"{RANDOM} --target-layers 9", "--target-layers: expected a number in [1, 2], got 9"),
        (f"{RANDOM} --drafter early-exit --layer-decay 0", "--layer-decay: expected"),
        (f"{RANDOM} --prompts a.json", "--prompts: expected none beside --random-weights, got on"),
        ("bench --input-len 4 --category plays", "--category: expected none beside --input-len"),
        (f"{RANDOM} --device meta", "--device: expected cpu or cuda, got meta"),
        (f"{RANDOM} --device cuda:{NINES}", "--device: expected"),
        (
            f"{RANDOM} --draft-random-weights small.json --drafter early-exit",
            "expected none beside",
        ),
        (f"{KERNELS} --only=", "--only: expected a string with content, got ''"),
        (f"{RANDOM} --draft-random-weights small.json", "vocab_size: expected 61, as the target"),
        (f"bench --target {TARGET}", "--num-spec-tokens: expected 0, or --draft, --draft-random-"),
        (f"bench --target {TARGET} --draft=", "--draft: expected a string with content, got ''"),
        ("bench --layer-decay 0.5", "--layer-decay: expected --random-weights beside it"),
        ("bench --draft-layers 2", "--draft-layers: expected --drafter early-exit beside it"),
        ("bench --num-spec-tokens -1", "--num-spec-tokens: expected a number in [0, 256]"),
        ("bench --prompts none.jsonl", "none.jsonl: expected a UTF-8 text file"),
        ("bench --compare none.json", "none.json: expected JSON"),
        ("bench --cpu-time --device cuda", "--cpu-time: expected the device cpu, got cuda"),
        ("bench --json /dev/null/a.json", "a.json: expected a file that can be written"),
        ("bench --draft-random-weights x.json", "expected --random-weights beside it"),
        ("bench --max-concurrency 2,0", "--max-concurrency: expected"),
        ("bench --num-requests 0", "--num-requests: expected a number in [1, 1000000], got 0"),
        ("bench --request-rate 0", "--request-rate: expected a number"),
        ("bench --request-rate 1e-300", "--request-rate: expected a number in [1e-06, inf)"),
        ("bench --json=", "'--json': expected a path, got ''"),
        ("generate --prompt a --config=", "'--config': expected a path, got ''"),
        ("bench --plots=", "'--plots': expected a path, got ''"),
        ("bench --output-len 1024", "1 tokens, which leave room for --output-len, got"),
        ("bench --input-len 4 --length-spread 1.5", "--length-spread: expected a number"),
        ("bench --drafter ngram,model --adaptive x.json", "--adaptive: expected one drafter"),
        ("bench --drafter model,foo", "--drafter: expected one of model, eagle"),
        ("bench --drafter ngram,eagle", "--drafter: expected eagle3, as "),
        ("bench --backend reference,fast", "--backend: expected one of reference, "),
        ("bench --category rain", "--category: expected one of plays, prose, got 'rain'"),
        (f"bench --num-requests {NINES}", "--num-requests: expected a number in [1, 1000000], got"),
        (f"bench --warm-up {NINES}", "--warm-up: expected a number in [0, 1000000], got 9"),
        ("bench --max-concurrency 1,99999", "--max-concurrency: expected a number in [1, 65536]"),
        (f"bench --input-len {NINES}", "--input-len: expected a number in [1, 1024], got 9"),
        (f"bench --input-len 1 --output-len {NINES}", "--output-len: expected a number in [1, "),
        ("bench --pair llama3-eagle", "--pair: expected --target or --random-weights beside it"),
        (f"bench --pair llama3-eagle --target {TARGET}", "ngram or early-exit, or --draft beside"),
        ("bench --random-weights", "--random-weights: expected a config.json or --pair, got nei"),
        ("bench --pair best", "'best' is not one of 'llama3-eagle'"),
        (f"{GPT_OSS} --target-layers 25", "--target-layers: expected a number in [1, 24], got 25"),
        (f"{GPT_OSS} --max-model-len 131073", "--max-model-len: expected a number in [1,"),
        (f"{GPT_OSS} --layer-decay 0.5", "--layer-decay: expected the adapter own, got trans"),
        (f"{GPT_OSS} --forward triton", "forward triton: expected the adapter own"),
        ("tune --num-spec-tokens 0", "--num-spec-tokens: expected one above 0"),
        (
            "tune --concurrency 2 --predict-concurrency 2,8",
            "--predict-concurrency: expected two that are measured",
        ),
        (f"tune --concurrency {NINES}", "--concurrency: expected a number in [1, 65536], got 9"),
        ("bench --policy synthetic", "--policy: expected --synthetic-acceptance-rate beside syn"),
        ("bench --backend cupy", "backend cupy: "),
        (f"tune {RATE} 2", f"{RATE}: expected a number in [0, 1]"),
        ("tune --steps 1", "steps"),
        ("tune --cpu-time --device cuda", "--cpu-time: expected the device cpu, got cuda"),
        (f"{KERNELS} --backend nope", "got 'nope'"),
        (f"{KERNELS} --dtype int8", "int8"),
        (f"{KERNELS} --worst --history 9", "--history: expected none beside --worst, got one"),
        (f"{KERNELS} --history 9", "--history: expected --repetition-penalty beside it, got none"),
        (f"{KERNELS} --only x --only y", "--only: expected part of a name, got x, y"),
        ("bench kernels --device nowhere", "nowhere"),
        ("bench kernels --device meta", "meta"),
        (f"{KERNELS} --requests 1,0", "--requests"),
        (f"{KERNELS} --requests 99999", "99999"),
        (f"{KERNELS} --vocab-size {NINES}", NINES),
        (f"{KERNELS} --seconds 0", "'--seconds': 0.0 is not in the range x>0"),
        (f"{KERNELS} --json /dev/null/a.json", "/dev/null/a.json"),
    ],
)
def test_commands(
    complaint: Complaint,
    shape: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    problem: str,
) -> None:
    shape("large")
    monkeypatch.chdir(shape("small", vocab_size=60).parent)
    assert problem in complaint(*command.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sampling]\nwarmth = 1", "sampling.warmth: expected temperature, min_p, "),
        ("[sampling]\ntop_p = true", "sampling.top_p: expected a number, got True"),
        ("[sampling.draft]\ntop_p = 'a'", "sampling.draft.top_p: expected a number, got 'a'"),
        ("[sampling.logit_bias]\nx = 1", "sampling.logit_bias: expected a table from token ids "),
        ("backend = 'fast'", "backend: expected one of reference, "),
        ("sampling = 3", "sampling: expected a table, got 3"),
        ("[decoding]\nstop = [1]", "decoding.stop[0]: expected a string, got 1"),
        ("[decoding]\nignore_eos = 1", "decoding.ignore_eos: expected true or false, got 1"),
        ("[drafter]\nname = 'magic'", "drafter.name: expected one of model, eagle, "),
        ("[drafter]\nmin_ngram = 4", "drafter.min_ngram: expected a number in [1, 3], got 4"),
        ("[engine]\nnum_slots = 0", "engine.num_slots: expected a number in [1, 65536], got 0"),
        ("[engine]\nnum_slots = 65537", "engine.num_slots: expected a number in [1, 65536], got "),
        ("[policy]\nepsilon = 0.1", "policy.name: expected one of probabilistic, block, "),
        ("[policy]\nname = 'block'\nx = 1", "policy.x: expected no setting here, got an unknown"),
        ("[policy]\nname = 'typical'\nepsilon = 2", "policy.epsilon: expected a number in [0, 1]"),
        (f"{SYNTHETIC}rates = [0.5, 0.7]", "policy.rates[1]: expected at most the rate before"),
        (f"{SYNTHETIC}rates = [1]\nacceptance_rate = 1", "policy.name: expected one of rates, acc"),
        ("[sampling", "expected a TOML file, got "),
        ("a = " + "[" * 9999, "expected a TOML file, got maximum"),
        ("\udcff\udcfe", "expected a TOML file, got "),
    ],
)
def test_files(complaint: Complaint, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text, errors="surrogateescape")
    assert complaint(*GENERATE, "--config", file).startswith(f"{file}: {message}")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a file without an end")
@pytest.mark.parametrize(
    "command",
    [
        (*GENERATE, "--config"),
        (*GENERATE, "--json-schema"),
        ("bench", "--prompts"),
        ("bench", "--compare"),
    ],
)
def test_a_file_without_an_end(complaint: Complaint, command: tuple[str, ...]) -> None:
    said = complaint(*command, "/dev/zero")
    assert said.startswith("/dev/zero: expected ")
    assert said.endswith(", got more than 67108864 characters")


def test_a_draft_whose_tokens_nobody_can_tell(complaint: Complaint, copy_of: CopyOf) -> None:
    draft = copy_of(DRAFT)
    keep_ids(draft, range(4090))
    arguments = (*GENERATE, "--target", TARGET, "--draft", draft)
    assert complaint(*arguments).startswith(
        f"{draft / 'tokenizer.json'}: expected token ids below the model's vocab_size, 4090"
    )
    (draft / "tokenizer.json").unlink()
    assert complaint(*arguments) == (
        f"{draft}: expected tokenizer.json, or a vocabulary of 4096 tokens as the target has, "
        "got 4090"
    )


def test_a_draft_without_a_tokenizer_is_welcome(acceptor: Acceptor, copy_of: CopyOf) -> None:
    draft = copy_of(DRAFT)
    (draft / "tokenizer.json").unlink()
    code, out, _ = acceptor(*GENERATE, "--target", TARGET, "--draft", draft, "--json")
    assert code == 0
    assert json.loads(out)["stats"]["num_drafts"] > 0


def test_a_tokenizer_beyond_the_models_vocabulary(complaint: Complaint, copy_of: CopyOf) -> None:
    target = copy_of(TARGET)
    tokenizer = json.loads((target / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["no such word"] = 4096
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert complaint(*GENERATE, "--target", target).startswith(
        f"{target / 'tokenizer.json'}: expected token ids below the model's vocab_size, 4096"
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_and_damaged_files(complaint: Complaint, copy_of: CopyOf, name: str) -> None:
    target = copy_of(TARGET)
    file = target / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert str(file) in complaint(*GENERATE, "--target", target)
    file.unlink()
    assert str(target) in complaint(*GENERATE, "--target", target)


def test_bad_weights_end_the_request_with_a_status(acceptor: Acceptor, copy_of: CopyOf) -> None:
    target = copy_of(TARGET)
    edit_tensors(target, lambda tensors: tensors["model.norm.weight"].fill_(torch.nan))
    code, out, _ = acceptor(*GENERATE, "--target", target, "--compare-plain")
    assert code == 1
    assert "error: target logits invalid" in out


@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "generation_config.json", "tokenizer_config.json"]
)
def test_a_link_to_nothing_is_damage(complaint: Complaint, copy_of: CopyOf, name: str) -> None:
    file = copy_of(TARGET) / name
    file.unlink(missing_ok=True)
    file.symlink_to("nowhere")
    said = complaint(*GENERATE, "--chat", "--target", file.parent)
    assert said == f"{file}: expected a file, got none"

"""Limits on what templates and tokenizers compute, and the child process that keeps them."""

import json
import os
import resource
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from acceptor.adapters import ChatTemplate, Tokenizer
from acceptor.adapters.confined_worker import MEGABYTE, MEMORY, SECONDS
from acceptor.adapters.confinement import Confinement, confinement
from acceptor.core import CheckpointError, InvalidInputError, UnavailableError
from kit.interpreted import run_python

UNKNOWN = "?"
DOUBLING = (
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
)
LONG = "{% set n = namespace(x='é' * 900000) %}" + "{% set n.x = n.x ~ n.x %}" * 5
FOREVER = (
    "{% set x = 'a' * 900000 %}{% for i in range(9999) %}{% if x | replace('aab', '') %}{% endif %}"
    "{% endfor %}"
)


@pytest.fixture
def child() -> Any:
    own = Confinement()
    yield own
    own.close()


def rendered(own: Confinement, template: str) -> Any:
    reply = own.run("render", template, {})
    return reply.get("value", reply.get("kind"))


def test_memory_of_jobs_is_bounded(child: Confinement) -> None:
    """Also of what they say when they fail, and however many fail."""
    assert rendered(child, "{{ 1 }}") == "1"
    assert child._child is not None
    process = Path(f"/proc/{child._child.pid}")
    before = int((process / "statm").read_text().split()[0]) * resource.getpagesize()
    assert rendered(child, LONG + "{{ raise_exception(n.x) }}") == "RaisedByTemplateError"
    for _ in range(4):
        assert rendered(child, DOUBLING) == "MemoryError"
    peak = int((process / "status").read_text().partition("VmPeak:")[2].split()[0]) * 1024
    # Memory that the allocator keeps for the next job.
    assert peak <= before + MEMORY + 64 * MEGABYTE


def test_time_of_a_job_is_bounded(child: Confinement) -> None:
    assert rendered(child, "{{ 1 }}") == "1"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert child.run("render", FOREVER, {})["error"] == "more time than it may take"
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The child's start and the other job take less than the same time again.
    assert now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime < 2 * SECONDS
    assert rendered(child, "{{ 1 }}") == "1"


def test_a_job_finds_a_child_after_somebody_ended_it(child: Confinement) -> None:
    assert rendered(child, "{{ 1 }}") == "1"
    assert child._child is not None
    os.kill(child._child.pid, signal.SIGKILL)
    child._child.wait()
    assert rendered(child, "{{ 2 }}") == "2"


@pytest.mark.parametrize("template", ["{{ 2 }}", "2" * 2**20])
def test_a_child_that_is_stopped_is_given_up(template: str) -> None:
    """Whether or not the job can be written to it."""
    child = Confinement(patience=1.0)
    assert rendered(child, "{{ 1 }}") == "1"
    assert child._child is not None
    os.kill(child._child.pid, signal.SIGSTOP)
    assert child.run("render", template, {}) == {"kind": "limit", "error": "no answer for 1 s"}
    child.patience = 60.0
    assert rendered(child, "{{ 2 }}") == "2"
    child.close()


def test_threads_get_their_own_answers() -> None:
    template = ChatTemplate.compile("chat_template.jinja", "{{ messages[0].content }}")

    def ask(number: int) -> str:
        return template.render([{"content": f"number {number}"}], {})

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(40))) == [f"number {number}" for number in range(40)]


def test_an_answer_that_nobody_waited_for_is_not_the_next_one(
    child: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rendered(child, "{{ 1 }}")
    assert rendered(child, "{{ 2 }}") == "2"


def test_the_child_ends_with_its_process() -> None:
    code = (
        "import os; from acceptor.adapters.confinement import confinement as c;"
        "c.run('render', '1', {}); print(c._child.pid, flush=True); os._exit(0)"
    )
    assert has_ended(int(run_python("-c", code)))


def has_ended(pid: int) -> bool:
    for _ in range(200):
        state = Path(f"/proc/{pid}/stat")
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        signal.sigtimedwait([], 0.01)
    return False


def test_a_process_forked_in_the_middle_of_a_job_is_not_locked() -> None:
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(rendered, confinement, "{% for i in range(40000) %}{% endfor %}1")
        while confinement.lock.acquire(blocking=False):
            confinement.lock.release()
        forked = os.fork()
        if not forked:
            signal.alarm(20)
            os._exit(0 if rendered(confinement, "{{ 2 }}") == "2" else 1)
        assert os.waitpid(forked, 0)[1] == 0
        assert job.result() == "1"


def test_no_process_can_be_started(child: Confinement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with pytest.raises(UnavailableError, match="expected a child process for templates and tok"):
        rendered(child, "{{ 1 }}")


def test_templates_need_a_system_that_limits_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnavailableError, match=r"^x\.jinja: expected Linux, .* got darwin$"):
        ChatTemplate.compile("x.jinja", "{{ 1 }}")


def test_messages_that_json_cannot_hold() -> None:
    template = ChatTemplate.compile("chat_template.jinja", "{{ messages[0].content }}")
    with pytest.raises(InvalidInputError, match="messages: expected values that JSON can hold"):
        template.render([{"content": b"bytes"}], {})


def save(backend: Backend, directory: Path) -> Path:
    backend.save(str(directory / "tokenizer.json"))
    return directory


def letters() -> Backend:
    return Backend(models.WordLevel({"a": 0, "b": 1, UNKNOWN: 2}, unk_token=UNKNOWN))


def test_exploding_patterns_get_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backend = letters()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    tokenizer = Tokenizer.load(save(backend, tmp_path))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected token ids, got ") as got:
        tokenizer.encode("a" * 3000 + "c")
    assert "\n" not in str(got.value)
    assert capfd.readouterr() == ("", "")


def test_a_decoder_that_explodes_is_refused_when_it_is_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = Backend(models.WordLevel({"a" * 60 + "b": 0, UNKNOWN: 1}, unk_token=UNKNOWN))
    backend.decoder = decoders.Replace(Regex("(a+)+$"), "x")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected a tokenizer, got "):
        Tokenizer.load(save(backend, tmp_path))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("stages", "got"),
    [
        ([decoders.Replace("ab", "c" * 99), decoders.Replace("c", "d" * 99)], "4.9e.03 times as"),
        ([decoders.Replace("", " ")], "got a pattern or none$"),
        ([decoders.Replace(Regex("b(a+a+)+c"), " ")], "got a pattern or none$"),
        ([decoders.BPEDecoder("")], "got a pattern or none$"),
        ([decoders.CTC("<pad>", "")], "got a pattern or none$"),
        ([decoders.WordPiece("##")] * 99, "a decoder of at most 2048 bytes, got 4998$"),
        ([decoders.BPEDecoder("b" * 9000)], "a decoder of at most 2048 bytes, got 9"),
        ([decoders.Strip("a", 0, 2)], "a decoder that strips no ends, got one that strips 2$"),
    ],
)
def test_a_decoder_that_explodes_on_some_tokens_is_refused(
    stages: list[Any], got: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = letters()
    backend.decoder = decoders.Sequence([decoders.Fuse(), *stages])
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json: expected .*{got}"):
        Tokenizer.load(save(backend, tmp_path))
    assert capfd.readouterr() == ("", "")


def test_a_token_that_says_too_much_is_refused(tmp_path: Path) -> None:
    backend = letters()
    backend.add_tokens(["b" * 5000])
    with pytest.raises(CheckpointError, match="expected tokens that say at most 4096 characters"):
        Tokenizer.load(save(backend, tmp_path))


def test_a_table_that_explodes_is_refused(tmp_path: Path) -> None:
    save(letters(), tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["a"] = 2**40
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected a"):
        Tokenizer.load(tmp_path)


def test_text_that_explodes_is_refused(tmp_path: Path) -> None:
    content = json.loads(letters().to_str())
    content["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 4,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.load(tmp_path)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected token ids, got "):
        tokenizer.encode("a")
    assert tokenizer.encode("b") == [1]


def test_a_tokenizer_that_has_changed_since_it_was_loaded(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(save(letters(), tmp_path))
    confinement.close()
    with (tmp_path / "tokenizer.json").open("a") as file:
        file.write(" ")
    with pytest.raises(CheckpointError, match="got a file that has changed since it was loaded"):
        tokenizer.encode("a")

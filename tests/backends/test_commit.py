"""Records name the commit that they were measured at, and never another project's."""

import shutil
import subprocess
from pathlib import Path

import pytest

from acceptor.backends.commit import UNKNOWN, VARIABLE, at_commit, commit


@pytest.fixture(autouse=True)
def without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_copy_of_the_files_is_told_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "0123abc")
    assert commit(tmp_path) == "0123abc"


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git")
def test_a_checkout_knows_its_commit_and_whether_files_differ(tmp_path: Path) -> None:
    changed, inner = tmp_path / "changed", tmp_path / "changed" / "inner"
    for root in (tmp_path / "clean", changed):
        _check_in(root)
    (changed / "file").write_text("another\n", encoding="utf-8")
    inner.mkdir()
    assert commit(tmp_path / "clean") + "-dirty" == commit(changed)
    assert commit(inner) == UNKNOWN


def _check_in(root: Path) -> None:
    root.mkdir()
    (root / "file").write_text("one\n", encoding="utf-8")
    date = {"GIT_AUTHOR_DATE": "2026-01-02T00:00Z", "GIT_COMMITTER_DATE": "2026-01-02T00:00Z"}
    someone = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "file"), (*someone, "commit", "-q", "-m", "First")):
        subprocess.run(["git", "-C", str(root), *command], check=True, env=date | _PATH)


_PATH = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nowhere"}


def test_what_is_not_known_is_not_shown() -> None:
    assert commit(Path("/nowhere")) == UNKNOWN
    assert at_commit({}) == at_commit({"commit": UNKNOWN}) == ""
    assert at_commit({"commit": "0123abc"}) == ", commit 0123abc"

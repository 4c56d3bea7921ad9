"""Libraries built by g++, kept for the next process that asks.

Workers share tests, so each would compile what the others did. A library is known by everything
that made it.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from attrs import frozen

# Without unique symbols each library has its own of everything.
_OPTIONS = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-fno-gnu-unique")


@frozen(eq=False, slots=False)
class KeptLibraries:
    """Of sources that include each other.

    Attributes:
        place: where libraries are kept, those of the present sources only.
        folders: of the sources; what is built is in the first.
    """

    place: Path
    folders: Sequence[Path]

    def of(self, source: str, macros: Sequence[str]) -> Path:
        """The library of a file, named without `.cpp`, which is compiled unless it is there."""
        name = sha256(" ".join((source, *macros)).encode()).hexdigest()[:24]
        library = self._present / f"{name}.so"
        with library.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                self._compile(source, macros, library)
        return library

    def _compile(self, source: str, macros: Sequence[str], library: Path) -> None:
        includes = [f"-I{folder}" for folder in self.folders]
        path, unfinished = self.folders[0] / f"{source}.cpp", library.with_suffix(".part")
        command = ["g++", *_OPTIONS, *includes, *macros, str(path), "-o", str(unfinished)]
        subprocess.run(command, check=True)
        unfinished.rename(library)

    @cached_property
    def _present(self) -> Path:
        version = subprocess.run(["g++", "--version"], check=True, capture_output=True).stdout
        told = sha256(version + " ".join(_OPTIONS).encode())
        for file in sorted(file for folder in self.folders for file in folder.iterdir()):
            told.update(file.name.encode() + file.read_bytes())
        present = self.place / told.hexdigest()[:24]
        for other in self.place.glob("*"):
            if other != present:
                shutil.rmtree(other, ignore_errors=True)
        present.mkdir(parents=True, exist_ok=True)
        return present

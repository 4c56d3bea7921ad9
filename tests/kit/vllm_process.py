"""vLLM's Python without what it needs beside it: `pytest -p kit.vllm_process` imports it so.

The files of the released wheel lie in .venv/vllm (`make vllm`), or somewhere else on the path. What
is compiled, a server's or a grammar's is an empty module; PyTorch, Triton, pydantic and msgspec are
real. Without a CUDA device vLLM's kernels run in Triton's interpreter.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

ON_GPU = torch.cuda.is_available()
VLLM = Path(__file__).parents[2] / ".venv" / "vllm"
ABSENT = (
    *("aiohttp", "cachetools", "cbor2", "cloudpickle", "cpuinfo", "fastapi", "llguidance"),
    *("openai", "openai_harmony", "partial_json_parser", "prometheus_client", "psutil"),
    *("pybase64", "uvloop", "vllm._C", "vllm._C_stable_libtorch", "vllm.entrypoints"),
    *("vllm.parser", "vllm.reasoning", "vllm.triton_utils"),
    *("vllm.v1.worker.gpu.spec_decode.dspark.speculator",),
    *("vllm.v1.worker.gpu.spec_decode.speculator", "xgrammar", "zmq"),
    # torchvision, which transformers imports where there is one, draws with it.
    *(() if find_spec("PIL") else ("PIL",)),
)


class StandIn(ModuleType):
    """A module in which every name is a class that can be called, subclassed and subscripted."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (Anything,), {})
        setattr(self, name, value)
        return value


class Anything:
    """An object that takes whatever it is given."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __init_subclass__(cls, **_: object) -> None: ...

    def __class_getitem__(cls, _: object) -> type:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> dict[str, str]:
        return {"type": "any"}


class StandIns(MetaPathFinder, Loader):
    """Finds what is absent, before anything else does."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002, the protocol's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if any(name == root or name.startswith(f"{root}.") for root in ABSENT):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "vllm.triton_utils":
            # vLLM would not use Triton without a driver.
            triton = import_module("triton")
            vars(module).update(HAS_TRITON=True, triton=triton, tl=triton.language)
            vars(module).update(tldevice=_libdevice(triton.language))


def _libdevice(language: Any) -> Any:
    """What kernels call of CUDA's library; the interpreter has none."""
    if ON_GPU:
        return import_module("triton.language.extra.libdevice")
    return SimpleNamespace(log1p=lambda value: language.log(1 + value))


if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
sys.path.append(str(VLLM))
sys.meta_path.insert(0, StandIns())

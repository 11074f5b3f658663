"""Settings: flag > environment > file > default; whatever is unknown or malformed is an error.

Files are TOML: ``/etc/chromafuse/config.toml``, then ``$XDG_CONFIG_HOME/chromafuse/config.toml``;
``--config`` (or ``CHROMAFUSE_CONFIG``) names one that is read instead of both. The environment
variable of a setting is its name in capitals behind ``CHROMAFUSE_``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from chromafuse.domain.chunking import DEFAULT_CHUNK_SIZE
from chromafuse.domain.errors import ConfigError

ENV_PREFIX = "CHROMAFUSE_"
CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
SYSTEM_CONFIG = Path("/etc/chromafuse/config.toml")

_COLLECTION = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]\Z")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def xdg(variable: str, default: str) -> Path:
    """Return an XDG base directory: the variable's, if absolute, else ``default`` in the home."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default


def user_config() -> Path:
    """Return the user's configuration file."""
    return xdg("XDG_CONFIG_HOME", ".config") / "chromafuse" / "config.toml"


def default_target() -> str:
    """Return the directory of the embedded database that is used unless told otherwise."""
    return str(xdg("XDG_DATA_HOME", ".local/share") / "chromafuse" / "chroma")


def _parse_bytes(value: object) -> object:
    """Accept ``256M``, ``256MB``, ``256MiB`` or a number of bytes."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([KMG]?)(i?B)?\s*", value, re.IGNORECASE)
    if match is None:
        raise ValueError("should be a number of bytes such as 268435456, 256M or 1G")
    return int(match[1]) * _UNITS[match[2].upper()]


def _check_collection(value: str) -> str:
    if not _COLLECTION.match(value):
        raise ValueError(
            "should be 3-512 letters, digits, dots, dashes or underscores,"
            " beginning and ending with a letter or digit"
        )
    return value


def _split_names(value: object) -> object:
    if isinstance(value, str):
        return [name.strip() for name in value.split(",")]
    return value


def _check_names(value: list[str]) -> list[str]:
    if "" in value:
        raise ValueError("holds an empty name")
    return value


Bytes = Annotated[int, BeforeValidator(_parse_bytes), Field(ge=0)]
Names = Annotated[list[str], NoDecode, BeforeValidator(_split_names), AfterValidator(_check_names)]


class Settings(BaseSettings):
    """Everything that can be set; each command uses what concerns it."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=False
    )

    chroma: str = Field(default_factory=default_target, min_length=1)
    collection: Annotated[str, AfterValidator(_check_collection)]
    groups: Names | None = None
    empty_groups: Literal["hidden", "authenticated"] = "hidden"
    cache_size: Bytes = 256 << 20
    deadline: float = Field(default=10.0, gt=0, le=3600)
    allow_other: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_file: Path | None = None
    chunk_size: int = Field(default=DEFAULT_CHUNK_SIZE, ge=1, le=16_000)
    embed: Literal["none", "wordllama"] = "none"
    preset: Literal["auto", "mintlify", "plain"] = "auto"
    include: Names = []
    exclude: Names = []
    hidden: Literal["omit", "include"] = "omit"
    snippets: bool = False
    default_access: Literal["public", "authenticated", "hidden"] = "public"

    _file_values: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources; those that this program does not have are left out."""
        return (init_settings, env_settings, _FileSource(settings_cls, cls._file_values))


class _FileSource(PydanticBaseSettingsSource):
    """The values of the configuration files, already read."""

    def __init__(self, settings_cls: type[BaseSettings], values: Mapping[str, Any]) -> None:
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self._values)


def load(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """Return the settings. ``flags`` with the value None were not given.

    Raises ``ConfigError`` whose text names every problem at once, and where each value is from.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    values, files, problems = _read_files(config)
    problems += _unknown_variables()

    class Loaded(Settings):
        _file_values = values

    try:
        settings = Loaded(**given)  # type: ignore[arg-type]  # pydantic checks them
    except ValidationError as error:
        problems += [_explain(item, given, files) for item in error.errors()]
    else:
        if not problems:
            return settings
    raise ConfigError("; ".join(dict.fromkeys(problems)))


def _read_files(config: Path | None) -> tuple[dict[str, Any], dict[str, Path], list[str]]:
    """Return values, the file each is from, and problems."""
    named = config or (Path(text) if (text := os.environ.get(CONFIG_VARIABLE)) else None)
    paths = [named] if named else [p for p in (SYSTEM_CONFIG, user_config()) if p.exists()]
    values: dict[str, Any] = {}
    files: dict[str, Path] = {}
    problems: list[str] = []
    for path in paths:
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            problems.append(f"cannot read {path}: {error.strerror}")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            problems.append(f"{path} is not TOML: {error}")
        else:
            values.update(found)
            files.update(dict.fromkeys(found, path))
    return values, files, problems


def _unknown_variables() -> list[str]:
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields} | {CONFIG_VARIABLE}
    return [
        f"unknown variable {name} in the environment"
        for name in sorted(os.environ)
        if name.startswith(ENV_PREFIX) and name not in known
    ]


def _explain(item: Any, given: Mapping[str, object], files: Mapping[str, Path]) -> str:
    name = str(item["loc"][0]) if item["loc"] else ""
    flag = "--" + name.replace("_", "-")
    if item["type"] == "missing":
        return f"{flag} is missing (or set {ENV_PREFIX}{name.upper()})"
    if item["type"] == "extra_forbidden":
        return f"unknown key {name} in {files.get(name, 'the settings')}"
    if name in given:
        where = flag
    elif ENV_PREFIX + name.upper() in os.environ:
        where = ENV_PREFIX + name.upper()
    else:
        where = f"{name} in {files.get(name, 'the settings')}"
    text = str(item["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return f"{where} {text[0].lower()}{text[1:]}"

"""Settings: flag > environment > file > default; whatever is unknown or malformed is an error.

Files are TOML: ``/etc/chromafuse/config.toml``, then ``$XDG_CONFIG_HOME/chromafuse/config.toml``;
``--config`` (or ``CHROMAFUSE_CONFIG``) names one that is read instead of both. The environment
variable of a setting is its name in capitals behind ``CHROMAFUSE_``.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from chromafuse.domain.chunking import DEFAULT_CHUNK_SIZE
from chromafuse.domain.errors import ConfigError
from chromafuse.domain.pointer import (
    DEFAULT_GREP_MAX,
    Place,
    Registration,
    check_endpoint,
    parse_place,
    parse_registration,
)

if TYPE_CHECKING:
    from chromafuse.stores.s3 import S3Options

ENV_PREFIX = "CHROMAFUSE_"
CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
SYSTEM_CONFIG = Path("/etc/chromafuse/config.toml")

MAX_BYTES = 2**63 - 1

_PORT = re.compile(r"[0-9]{1,5}\Z")
_COLLECTION = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]\Z")
LOCK_ENDINGS = (".switch", ".takeover")
"""Endings of the collections that ingests use as locks."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def xdg(variable: str, default: str) -> Path:
    """Return an XDG base directory: the variable's, if absolute, else ``default`` in the home."""
    value = os.environ.get(variable, "")
    if value.startswith("/"):
        return Path(value)
    try:
        return Path.home() / default
    except RuntimeError:
        raise ConfigError(
            "this user has no home directory", remedy=f"set HOME or {variable}"
        ) from None


def user_config() -> Path:
    """Return the user's configuration file."""
    return xdg("XDG_CONFIG_HOME", ".config") / "chromafuse" / "config.toml"


def cache_directory() -> Path:
    """Return the user's directory for what can be fetched again."""
    return xdg("XDG_CACHE_HOME", ".cache") / "chromafuse"


def state_directory() -> Path:
    """Return the user's directory for logs."""
    return xdg("XDG_STATE_HOME", ".local/state") / "chromafuse"


def default_target() -> str:
    """Return the directory of the embedded database that is used unless told otherwise."""
    return str(xdg("XDG_DATA_HOME", ".local/share") / "chromafuse" / "chroma")


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("should be a number, not true or false")
    return value


def _check_home(value: str) -> str:
    """Refuse the home directory of an unknown user; only where it is used, it is put in."""
    if value.startswith("~") and "://" not in value:
        try:
            Path(value).expanduser()
        except RuntimeError:
            raise ValueError(
                f"begins with {value.partition('/')[0]}, and there is no such home directory"
            ) from None
    return value


def _check_file(value: object) -> object:
    if value == "":
        raise ValueError("should not be empty")
    return value if not isinstance(value, str | Path) else _check_home(str(value))


def _parse_bytes(value: object) -> object:
    """Accept ``256M``, ``256MB``, ``256MiB`` or a number of bytes."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([KMG]?)(i?B)?\s*", value, re.IGNORECASE)
    if match is None:
        raise ValueError("should be a number of bytes such as 268435456, 256M or 1G")
    digits = match[1].lstrip("0") or "0"
    if len(digits) > len(str(MAX_BYTES)):
        raise ValueError(f"should be less than or equal to {MAX_BYTES}")
    return int(digits) * _UNITS[match[2].upper()]


def _check_collection(value: str) -> str:
    if not _COLLECTION.match(value):
        raise ValueError(
            "should be 3-512 letters, digits, dots, dashes or underscores,"
            " beginning and ending with a letter or digit"
        )
    if value.endswith(LOCK_ENDINGS):
        raise ValueError(f"should not end like the name of a lock ({', '.join(LOCK_ENDINGS)})")
    return value


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[address]:port``. Raises ``ConfigError``."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare) == (bare == host) or not _PORT.match(port) or int(port) > 65_535:
        raise ConfigError("should be host:port, as in 127.0.0.1:9464")
    return bare, int(port)


def _split_names(value: object) -> object:
    if isinstance(value, str) and value.startswith('["'):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"begins like a JSON list and is none: {error}") from None
    if isinstance(value, str):
        return [name.strip() for name in value.split(",")]
    return value


def _check_names(value: list[str] | None) -> list[str] | None:
    if value is not None and "" in value:
        raise ValueError("holds an empty name")
    return value


def _table_as_names(value: object) -> object:
    """Accept a table of a file, path -> address, as well as a list of texts."""
    if isinstance(value, dict):
        return [f"{path}={url}" for path, url in value.items()]
    return value


def _as_value(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a validator from a check that raises ``ConfigError``."""

    def validate(value: str) -> str:
        try:
            check(value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return value

    return validate


Whole = Annotated[int, BeforeValidator(_refuse_boolean)]
Seconds = Annotated[float, BeforeValidator(_refuse_boolean)]
Bytes = Annotated[
    int,
    BeforeValidator(_parse_bytes),
    BeforeValidator(_refuse_boolean),
    Field(ge=0, le=MAX_BYTES),
]
Names = Annotated[list[str], NoDecode, BeforeValidator(_split_names), AfterValidator(_check_names)]
OptionalNames = Annotated[  # around None too, or the environment's JSON is decoded elsewhere
    list[str] | None,
    NoDecode,
    BeforeValidator(_split_names),
    AfterValidator(_check_names),
]
Places = Annotated[
    list[Annotated[str, AfterValidator(_as_value(parse_place))]],
    NoDecode,
    BeforeValidator(_split_names),
]
Registrations = Annotated[
    list[Annotated[str, AfterValidator(_as_value(parse_registration))]],
    NoDecode,
    BeforeValidator(_table_as_names),
    BeforeValidator(_split_names),
]
File = Annotated[Path | None, BeforeValidator(_check_file)]


def _check_collected(path: Path | None) -> Path | None:
    if path is not None and path.suffix != ".prom":
        raise ValueError("should end in .prom: node_exporter reads no other files")
    return path


class Settings(BaseSettings):
    """Everything that can be set; each command uses what concerns it."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=False
    )

    chroma: Annotated[str, AfterValidator(_check_home)] = Field(
        default_factory=default_target, min_length=1
    )
    collection: Annotated[str, AfterValidator(_check_collection)]
    groups: OptionalNames = None
    token: SecretStr | None = None
    token_file: File = None
    token_fd: Whole | None = Field(default=None, ge=0, le=2**31 - 1)
    jwt_key: File = None
    jwt_algorithms: OptionalNames = None
    jwt_leeway: Seconds = Field(default=0.0, ge=0, le=300)
    audience: str | None = Field(default=None, min_length=1)
    groups_claim: str = Field(default="groups", min_length=1)
    groups_delimiter: str = Field(default=",", min_length=1)
    tokens_file: File = None
    empty_groups: Literal["hidden", "authenticated"] = "hidden"
    cache_size: Bytes = 256 << 20
    redis: str | None = None
    redis_ttl: Whole = Field(default=7 * 86_400, ge=1)
    warm: Literal["auto", "off", "all"] = "auto"
    refresh: Seconds = Field(default=5.0, ge=0, le=86_400)
    pin: str | None = Field(default=None, min_length=1)
    pushdown: Literal["auto", "cgrep", "off"] = "auto"
    search_timeout: Seconds = Field(default=2.0, gt=0, le=60)
    max_stale: Seconds = Field(default=3600.0, ge=0)
    metrics: Annotated[str, AfterValidator(_as_value(parse_address))] | None = None
    metrics_file: Annotated[File, AfterValidator(_check_collected)] = None
    deadline: Seconds = Field(default=10.0, gt=0, le=3600)
    allow_other: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_file: File = None
    pointers_allowed: Places = []
    pointer_grep_max: Bytes = DEFAULT_GREP_MAX
    hide_large_from_grep: bool = False
    s3_endpoint: Annotated[str, AfterValidator(_as_value(check_endpoint))] | None = None
    s3_region: str | None = Field(default=None, min_length=1)
    s3_profile: str | None = Field(default=None, min_length=1)
    pointers: Registrations = []
    upload_over: Bytes | None = None
    upload_to: Annotated[str, AfterValidator(_as_value(parse_place))] | None = None
    chunk_size: Whole = Field(default=DEFAULT_CHUNK_SIZE, ge=1, le=16_000)
    embed: Literal["none", "wordllama"] = "none"
    preset: Literal["auto", "mintlify", "plain"] = "auto"
    include: Names = []
    exclude: Names = []
    hidden: Literal["omit", "include"] = "omit"
    snippets: bool = False
    access: File = None
    default_access: Literal["public", "authenticated", "hidden"] = "public"

    _file_values: ClassVar[Mapping[str, Any]] = {}

    @property
    def places(self) -> list[Place]:
        """Where objects may be read."""
        return [parse_place(text) for text in self.pointers_allowed]

    @property
    def registrations(self) -> list[Registration]:
        """The objects that an ingest registers."""
        return [parse_registration(text) for text in self.pointers]

    def s3_options(self, timeout: float) -> S3Options:
        """Return how to reach S3 with requests of at most ``timeout`` seconds."""
        # Most commands need no S3.
        from chromafuse.stores.s3 import S3Options

        return S3Options(self.s3_endpoint, self.s3_region, self.s3_profile, timeout)

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
        if settings.hide_large_from_grep and settings.pushdown != "auto":
            problems.append(
                "hide_large_from_grep needs pushdown auto, which tells who is grep:"
                " set that, or drop it"
            )
        if not problems:
            return settings
    raise ConfigError("; ".join(dict.fromkeys(problems)))


def is_set(name: str, config: Path | None = None) -> bool:
    """Return whether the environment or a configuration file holds the setting ``name``."""
    variable = f"{ENV_PREFIX}{name}".upper()
    return any(key.upper() == variable for key in os.environ) or name in _read_files(config)[0]


_PLACES = "a token comes from a file of its own, a descriptor or the environment"


def _read_files(config: Path | None) -> tuple[dict[str, Any], dict[str, Path], list[str]]:
    """Return values, the file each is from, and problems."""
    named = config or (Path(text) if (text := os.environ.get(CONFIG_VARIABLE)) else None)
    paths = [named] if named else [SYSTEM_CONFIG, user_config()]
    values: dict[str, Any] = {}
    files: dict[str, Path] = {}
    problems: list[str] = []
    for path in paths:
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            if named or not isinstance(error, FileNotFoundError | NotADirectoryError):
                problems.append(f"cannot read {path}: {error.strerror}")
        except RecursionError:
            problems.append(f"{path} is nested too deeply")
        except ValueError as error:  # TOML's, UTF-8's and int()'s
            problems.append(f"{path} is not TOML: {error}")
        else:
            if found.pop("token", None) is not None:
                problems.append(f"token in {path} should not be there: {_PLACES}")
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

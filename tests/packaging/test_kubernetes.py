"""The manifest for Kubernetes: its commands and settings are ours, and its parts fit together.

It is parsed, not applied: there is no cluster here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from chromafuse.cli import mount, status
from chromafuse.cli.app import app
from chromafuse.config import load
from tests.mount.harness import PROJECT

MANIFEST = PROJECT / "docs" / "files" / "chromafuse-kubernetes.yaml"
COMMANDS = {module.__name__.rpartition(".")[2] for module in (mount, status)}
"""Those that the manifest uses; importing them makes them known."""
Node = dict[str, Any]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def objects() -> list[Node]:
    return list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))


def pods() -> Iterator[Node]:
    """The specifications of all pods."""
    for one in objects():
        if one["kind"] == "Pod":
            yield one["spec"]
        elif one["kind"] == "DaemonSet":
            yield one["spec"]["template"]["spec"]


def containers() -> Iterator[tuple[Node, Node]]:
    """All containers, each with its pod."""
    for pod in pods():
        for one in (*pod.get("initContainers", ()), *pod["containers"]):
            yield pod, one


def daemons() -> list[tuple[Node, Node]]:
    return [(pod, one) for pod, one in containers() if "args" in one]


def commands() -> Iterator[list[str]]:
    """The words of every command of ours, by itself and in a probe."""
    for _, one in daemons():
        yield one["args"]
        yield from (one[probe]["exec"]["command"] for probe in PROBES if probe in one)


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters that the command line makes of a command's words. Raises click's errors."""
    program, name, *rest = words
    assert program == "chromafuse"
    assert name in COMMANDS
    group: Any = typer.main.get_command(app)
    parameters: dict[str, Any] = group.commands[name].make_context(name, rest).params
    return parameters


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_command_line_takes_each_command(words: list[str]) -> None:
    found = parsed(words)
    assert found["mountpoint"].startswith("/srv/chromafuse/")
    if words[1] == "mount":
        assert found["foreground"]
        assert found["allow_other"]


def test_a_misspelt_option_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(["chromafuse", "mount", "--alow-other", "/srv/chromafuse/x"])


def test_the_settings_are_ours(tmp_path: Path) -> None:
    (secret,) = (one for one in objects() if one["metadata"]["name"] == "chromafuse-settings")
    path = tmp_path / "config.toml"
    path.write_text(secret["stringData"]["config.toml"])
    settings = load({}, path)
    assert settings.collection == "docs"
    assert settings.redis is not None
    assert settings.places


def test_a_probe_asks_for_what_its_container_mounts() -> None:
    for _, one in daemons():
        mounted = one["args"][-1]
        asked = [one[probe]["exec"]["command"][-1] for probe in PROBES if probe in one]
        assert asked
        assert set(asked) == {mounted}
        assert f"mkdir -p {mounted} " in one["command"][2]


def test_a_mount_reaches_other_containers_and_only_its_maker_is_privileged() -> None:
    for _, one in containers():
        shared = {m["mountPropagation"] for m in one["volumeMounts"] if "mountPropagation" in m}
        if "args" in one:
            assert shared == {"Bidirectional"}
            assert one["securityContext"]["privileged"]
            assert "/dev/fuse" in {m["mountPath"] for m in one["volumeMounts"]}
        else:
            assert shared == {"HostToContainer"}
            assert one["securityContext"]["runAsNonRoot"]
            assert not one["securityContext"].get("privileged")


def test_what_is_named_is_there() -> None:
    secrets = {one["metadata"]["name"]: one for one in objects() if one["kind"] == "Secret"}
    for pod, one in containers():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        places = {m["mountPath"]: volumes[m["name"]] for m in one["volumeMounts"]}
        for source in one.get("envFrom", ()):
            assert source["secretRef"]["name"] in secrets
        for word in one.get("args", ()):
            found = re.match(r"--[a-z-]+=((/etc/[a-z-]+)/(.+))", word)
            if found:
                secret = secrets[places[found[2]]["secret"]["secretName"]]
                assert found[3] in secret["stringData"]
    names = {(one["kind"], one["metadata"]["name"]) for one in objects()}
    assert len(names) == len(objects())
    (namespace,) = (one["metadata"]["name"] for one in objects() if one["kind"] == "Namespace")
    others = {one["metadata"].get("namespace") for one in objects() if one["kind"] != "Namespace"}
    assert others == {namespace}

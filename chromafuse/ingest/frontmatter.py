"""Access marks at the top of a Markdown page.

Only the marks are built from the YAML, not the whole block: a wrong date or an unknown tag
elsewhere in it says nothing about access. Whatever makes it unclear which marks a page carries is
``broken``, and a broken page is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from chromafuse.ingest.marks import has_misplaced_mark, looks_like_mark

MAX_BLOCK_BYTES = 64 * 1024
"""UTF-8 bytes between the two ``---`` lines; a longer block is broken."""

HEAD_BYTES = MAX_BLOCK_BYTES + 1024
"""The first bytes of a page that decide what ``parse_frontmatter`` returns for the whole."""

# Also `page.mdx~` and `page.md.bak`: a copy that an editor left says who may see it as well.
_PAGE_NAME = re.compile(r"\.(?:mdx?|markdown|mkd)(?![a-z0-9])", re.IGNORECASE)
_DATA_NAME = re.compile(r"\.(?:ya?ml|json[c5l]?)(?![a-z0-9])", re.IGNORECASE)
_FIRST_LINE = re.compile(r"\ufeff?---[ \t]*\r?(?:\n|$)")

_MARKS = ("groups", "public", "isPublic")
_SWITCHES = ("hidden", "noindex")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
_MARK_LINE = re.compile(r"^[ \t]*[\"']?(?:groups|public|isPublic)[\"']?[ \t]*:", re.MULTILINE)
_COMMENTED = re.compile(r"^[ \t]*#[# \t]*[\"']?(?:groups|public|isPublic)[\"']?[ \t]*:", re.M)
_TRUE, _FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})
_TAG = "tag:yaml.org,2002:"
_MAX_ALIASES = 64
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """What a page says of itself.

    ``marks`` holds ``groups``, ``public`` and ``isPublic`` as far as given; ``hidden`` is
    ``hidden: true`` or ``noindex: true``; ``broken`` tells why nothing of it can be believed;
    ``commented_rule`` that a mark stands in a YAML comment, where it has no effect.
    """

    marks: Mapping[str, object] = field(default_factory=dict)
    hidden: bool = False
    broken: str | None = None
    commented_rule: bool = False


def may_have_frontmatter(name: str) -> bool:
    """Return whether a file called ``name`` is a Markdown page or a copy of one."""
    return _PAGE_NAME.search(name.rpartition("/")[2]) is not None


def page_stem(rel: str) -> str | None:
    """Return the path of the page that the file ``rel`` is, or is a copy of, without its suffix."""
    directory, slash, name = rel.rpartition("/")
    match = _PAGE_NAME.search(name)
    return None if match is None else directory + slash + name[: match.start()].lstrip(".#~")


def begins_with_block(name: str, text: str) -> bool:
    """Return whether ``text`` has frontmatter although ``name`` is that of no page.

    In data such as YAML the same line only begins a document.
    """
    return _FIRST_LINE.match(text) is not None and _DATA_NAME.search(name) is None


def parse_frontmatter(text: str) -> Frontmatter:
    """Return the frontmatter of the page ``text``; never raises."""
    text = text.removeprefix("\ufeff")
    first, _, rest = text.partition("\n")
    if not first.startswith("---") or first.startswith("----"):
        return _without_block(text)
    if first.strip(" \t\r") != "---" or "\r" in first.removesuffix("\r"):
        return Frontmatter(broken="the first line begins with `---` but holds more than that")
    window = rest[: MAX_BLOCK_BYTES + 8]
    closing = _CLOSING.search(window)
    if closing is None or len(window[: closing.start()].encode()) > MAX_BLOCK_BYTES:
        if _CLOSING.search(rest):
            return Frontmatter(broken=f"the frontmatter is longer than {MAX_BLOCK_BYTES:,} bytes")
        return Frontmatter(
            broken="the `---` in its first line is never closed by another: close the frontmatter,"
            " or write `***` if it is meant as a line across the page"
        )
    block = window[: closing.start()]
    if closing.group().startswith("...") and _marks_before_fence(window[closing.end() :]):
        return Frontmatter(broken="access marks stand behind the `...` that ends the frontmatter")
    commented = _COMMENTED.search(block) is not None
    try:
        front, empty = _parse_block(block, commented)
    except _Unclear as error:
        return Frontmatter(broken=str(error), commented_rule=commented)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        reason = f"the frontmatter is not YAML{_place(error)}"
        return Frontmatter(broken=reason, commented_rule=commented)
    behind = len(first) + 1 + closing.end()
    if not front.marks and has_misplaced_mark(_head(text)[behind:], after_block=not empty):
        return Frontmatter(
            broken="an access mark stands behind the frontmatter: move it up, between the first"
            " two `---` lines",
            commented_rule=commented,
        )
    return front


class _Unclear(Exception):
    """The block is YAML, but which marks it states is not clear."""


class _Loader(yaml.SafeLoader):
    """Composes nodes only, with a bound on nesting and on aliases."""

    _aliases = 0
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self._aliases += 1
        self._depth += 1
        if self._aliases > _MAX_ALIASES or self._depth > _MAX_DEPTH:
            raise _Unclear("the frontmatter is nested too deeply or has too many aliases")
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        return node


def _parse_block(block: str, commented: bool) -> tuple[Frontmatter, bool]:
    """Return what ``block`` says, and whether it is empty."""
    root = yaml.compose(block.replace("\r\n", "\n"), Loader=_Loader)
    if root is None:
        return Frontmatter(commented_rule=commented), True
    if not isinstance(root, yaml.MappingNode):
        raise _Unclear("the frontmatter is not a list of `key: value` lines")
    marks: dict[str, object] = {}
    hidden = False
    for key, value in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _Unclear("a key in the frontmatter is a list or a mapping")
        name = key.value
        if name == "<<":
            raise _Unclear("the frontmatter merges another block with `<<`")
        if name in _SWITCHES:
            switch = _plain(value)
            hidden = hidden or switch is True or str(switch).lower() == "true"
        elif name in _MARKS:
            if name in marks:
                raise _Unclear(f"`{name}` stands twice in the frontmatter")
            marks[name] = _plain(value)
        elif looks_like_mark(name):
            name = name if name.isprintable() else ascii(name)
            raise _Unclear(f"`{name}` is not spelt like one of {', '.join(_MARKS)}")
    return Frontmatter(marks, hidden, None, commented), not root.value


def _plain(node: yaml.Node) -> object:
    """Return ``node`` as plain data of the shapes that marks may have; None stands for others."""
    if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
        return [_scalar(item) for item in node.value]
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        result: dict[object, object] = {}
        for key, value in node.value:
            name = _scalar(key)
            if name in result:
                raise _Unclear("a key stands twice in an access mark")
            nested = isinstance(value, yaml.SequenceNode)
            result[name] = _plain(value) if nested else _scalar(value)
        return result
    return _scalar(node)


def _scalar(node: yaml.Node) -> str | bool | None:
    if not isinstance(node, yaml.ScalarNode):
        return None
    if node.tag == _TAG + "bool":
        word = node.value.lower()
        return True if word in _TRUE else False if word in _FALSE else None
    if node.tag != _TAG + "str":
        return None
    # An escape can make half of a surrogate pair, which is no name that could be stored.
    is_text = not any("\ud800" <= char <= "\udfff" for char in node.value)
    return str(node.value) if is_text else None


def _without_block(text: str) -> Frontmatter:
    """Return what a page without ``---`` in its first line says: nothing, or marks misplaced."""
    if has_misplaced_mark(_head(text), after_block=False):
        return Frontmatter(
            broken="an access mark stands outside of a frontmatter: `---` must come first, alone in"
            " the first line, and again behind the marks"
        )
    return Frontmatter()


def _head(text: str) -> str:
    """Return the part of ``text`` in which marks are searched; ``HEAD_BYTES`` cover it."""
    return text[:MAX_BLOCK_BYTES].encode(errors="replace")[:MAX_BLOCK_BYTES].decode(errors="ignore")


def _marks_before_fence(text: str) -> bool:
    fence = _CLOSING.search(text)
    return fence is not None and _MARK_LINE.search(text, 0, fence.start()) is not None


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" in line {mark.line + 2}" if isinstance(mark, yaml.Mark) else ""

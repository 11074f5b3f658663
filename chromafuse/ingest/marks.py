"""Lines that look like access marks where none can have an effect.

Somebody who writes ``groups: [admin]`` at the top of a page means it, whatever stands before the
``---``: a comment, a form feed, a dash too few. Such a page must not be shown to everybody.
"""

from __future__ import annotations

import re
import unicodedata

_LOOKS = frozenset({"groups", "group", "public", "ispublic"})
_DROPPED = re.compile(r"[\s\"'`\-_]")
# Control, format and private characters, and fillers, but no tab.
_INVISIBLE = re.compile(
    "[\0-\x08\x0a-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ue000-\uf8ff"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffd\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
_NEWLINE = re.compile(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")
_KEY = re.compile(
    r"(?:\?\s*[\[{(]*|\{)?\s*([^\W_\d][^:=\]}]{0,40}|[\"'][^:=\]}]{1,40})(?:[:=\]}]|$)"
)
_CODE = re.compile(r"[\s>]*(?:(?:[-*+]|\d+[.)])\s+)*(`{3,}(?=[^`]*$)|~{3,})(.*)")
# What editors make of `---` counts too, and the fences of TOML.
_FENCE = re.compile(r" {0,3}(?:-{2,}|\+{3,}|\.{3,}|;{3,}|={3,})[ \t]*(?:ya?ml|toml|json)?[ \t]*")
_SIGNS = re.compile(r"--|\*\*|__")
_MARKUP = re.compile("[<>|]")
_WIDE_DASH = re.compile(
    "[\u058a\u1806\u2010-\u2015\u2212\u2500\u2501\u2e3a\u2e3b\ufe58\ufe63\uff0d]"
)
_PAIR = re.compile(r"\s*\??\s*[\"']?[\w.$@-]+(?: [\w.$@-]+){0,2}[\"']?\s*[:=](?:\s|$)")
_OTHER_YAML = re.compile(r"\s*(?:-(?:\s|$)|[\[\]{}?]|[\"'].*[\"'],?$)")
_ESM = re.compile(r"(?:import|export)\b")
# Characters of a line that are looked at; some patterns take the square of it.
_ENOUGH = 200
_COMMENTS = (("<!--", "-->"), ("{/*", "*/}"))


def looks_like_mark(key: str) -> bool:
    """Return whether a reader takes ``key`` for an access mark, however it is written."""
    return _DROPPED.sub("", _readable(key)).casefold() in _LOOKS


def has_misplaced_mark(text: str, *, after_block: bool) -> bool:
    """Return whether a line of ``text`` looks like an access mark that was meant to count.

    ``text`` is a page without its frontmatter; ``after_block`` tells that there was one. A mark
    counts before the first text of the page if it stands behind a line like a fence, before one,
    or, in a page without frontmatter, anywhere. Further down it counts between two lines like
    fences with nothing but YAML between them. In a code fence it is an example.
    """
    squeezed = _DROPPED.sub("", _readable(text)).casefold()
    if not any(word in squeezed for word in ("group", "public")):
        return False
    scan = _Scan(after_block)
    return any(scan.feed(line) for line in _NEWLINE.split(text))


class _Scan:
    """State while the lines of a page go by."""

    def __init__(self, after_block: bool) -> None:
        self._after_block = after_block
        self._code = ""  # the fence that ends the example
        self._comment = ""  # what ends the comment
        self._body = False  # text of the page has begun
        self._opened = False  # a fence and nothing but YAML behind it
        self._leading = False  # between the first fence, before any text, and the next
        self._pending = False  # a mark that counts if a fence follows
        self._esm = False  # in an `import` or `export` that goes over several lines

    def feed(self, raw: str) -> bool:
        """Take one line; return whether a mark counts."""
        line = _readable(raw)
        if not self._comment and self._in_code(line):
            return False
        if _is_fence(raw, line) or (not self._body and _is_ornament(line)):
            return self._fence()
        if not line.strip():
            return False
        if _is_mark(line) and not (self._esm and line[0] in " \t"):
            return self._mark()
        if not self._in_comment(line) and not self._is_neutral(line):
            self._body = True
            self._pending = self._pending and self._leading
            self._opened = False
        return False

    def _fence(self) -> bool:
        if self._pending:
            return True
        self._leading = not self._body and not self._after_block
        self._opened, self._esm = True, False
        return False

    def _mark(self) -> bool:
        if not self._body and (self._opened or not self._after_block):
            return True
        self._pending = self._pending or self._opened or self._leading or not self._body
        return False

    def _in_code(self, line: str) -> bool:
        match = _CODE.match(line[:_ENOUGH])
        if self._code:
            if match and match[1].startswith(self._code) and not match[2].strip():
                self._code = ""
            return True
        if match is None:
            return False
        self._code = match[1]
        self._body, self._opened, self._pending = True, False, False
        return True

    def _in_comment(self, line: str) -> bool:
        if not self._comment:
            starts = [end for start, end in _COMMENTS if line.lstrip().startswith(start)]
            if not starts:
                return False
            self._comment = starts[0]
        if self._comment in line:
            self._comment = ""
        return True

    def _is_neutral(self, line: str) -> bool:
        """Return whether ``line`` is neither text of the page nor the end of a block."""
        if not self._body and _ESM.match(line):
            self._esm = True
            return True
        if line[0] in " \t" and (self._esm or self._opened or self._pending):
            return True
        self._esm = False
        if line.startswith("#"):
            return self._opened
        lead = line.strip()[:_ENOUGH]
        return (_PAIR.match(lead) or _OTHER_YAML.match(lead)) is not None


def _is_mark(line: str) -> bool:
    lead = line.strip()[:_ENOUGH]
    match = _KEY.match(lead)
    if match is None or not (match.group()[-1] in ":=" or lead.startswith("?")):
        return False
    return looks_like_mark(match[1])


def _is_fence(raw: str, line: str) -> bool:
    if _FENCE.fullmatch(line.rstrip()[:_ENOUGH]):
        return True
    bare = raw.strip()
    return _WIDE_DASH.search(bare) is not None and not _WIDE_DASH.sub("", bare).strip("- \t")


def _is_ornament(line: str) -> bool:
    """Return whether ``line`` is a fence with something around it, or one of other signs."""
    lead = line.strip()[:_ENOUGH]
    if not _SIGNS.search(lead) or _MARKUP.search(lead):
        return False
    return not any(char.isalnum() for char in lead)


def _readable(text: str) -> str:
    """Return ``text`` in the form in which it looks the same as what it is taken for."""
    if text.isascii() and text.isprintable():
        return text
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))

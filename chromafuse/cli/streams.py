"""The three standard streams, whatever state they were inherited in.

Standard output that cannot be written is an ``OutputError``; standard error that cannot be written
is nobody's loss: there is nowhere left to tell it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from chromafuse.domain.errors import ChromafuseError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BROKEN_PIPE_CODE = 141
"""What a shell reports for a program that SIGPIPE ended."""


class OutputError(ChromafuseError):
    """Standard output cannot be written. The message is empty if its reader went away."""

    def __init__(self, error: OSError) -> None:
        gone = error.errno == errno.EPIPE
        super().__init__("" if gone else f"cannot write the output: {error.strerror}")
        self.exit_code = BROKEN_PIPE_CODE if gone else 1


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written = super().write(data)
            if written is None:  # not blocking, and full
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        except OSError as error:
            # What is still buffered must not fail a second time when the interpreter ends.
            _put_null(self.fileno(), os.O_WRONLY)
            raise OutputError(error) from None
        return written


class _Errors(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written


def prepare() -> None:
    """Make descriptors 0, 1 and 2 and their ``sys`` objects usable, whoever closed them.

    A free descriptor among them would be taken by the next file or pipe. Standard output is opened
    for reading only: a command whose output is lost has to say so.
    """
    for descriptor, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_RDWR)):
        try:
            os.fstat(descriptor)
        except OSError:
            _put_null(descriptor, mode)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    # A stream that is not the inherited one belongs to whoever called us as a library.
    if sys.stdout is None or sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout, lines=False)
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Errors(2, "w", closefd=False), sys.stderr, lines=True)


def _put_null(descriptor: int, mode: int) -> None:
    null = os.open(os.devnull, mode)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)


def _text(raw: io.FileIO, old: TextIO | None, *, lines: bool) -> io.TextIOWrapper:
    """Return a text stream over ``raw`` that behaves as ``old`` but for what it cannot encode."""
    encoding = "utf-8"
    if isinstance(old, io.TextIOWrapper):
        old.flush()
        encoding = old.encoding
        lines = lines or old.line_buffering or old.write_through
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=lines
    )

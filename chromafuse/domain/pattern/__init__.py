"""From the command line of a search program to a filter that never loses a match.

``analyse`` reads the arguments of grep or ripgrep and says which files can matter: a ``Search``
with a ``Query``, a formula of literals that every matching file satisfies. ``matcher`` and
``matches`` test a query on a file's bytes; ``to_chroma`` renders it for the database. What is not
understood for certain needs everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chromafuse.domain.pattern.evaluate import Matcher, matcher, matches
from chromafuse.domain.pattern.fold import Fold, fold_class
from chromafuse.domain.pattern.gnu import analyse_grep
from chromafuse.domain.pattern.options import NotParsed
from chromafuse.domain.pattern.query import ALL, All, And, Literal, Or, Query, selectivity
from chromafuse.domain.pattern.ripgrep import analyse_ripgrep
from chromafuse.domain.pattern.search import Needs, Program, ReadFile, Search, everything
from chromafuse.domain.pattern.where import MAX_OPERAND_BYTES, to_chroma

__all__ = [
    "ALL",
    "MAX_ARGUMENT_BYTES",
    "MAX_OPERAND_BYTES",
    "All",
    "And",
    "Fold",
    "Literal",
    "Matcher",
    "Needs",
    "Or",
    "Program",
    "Query",
    "ReadFile",
    "Search",
    "analyse",
    "fold_class",
    "matcher",
    "matches",
    "selectivity",
    "to_chroma",
]

MAX_ARGUMENT_BYTES = 131_072
"""A longer command line is not analysed."""


def analyse(
    program: Program,
    argv: Sequence[bytes],
    environ: Mapping[bytes, bytes],
    read_file: ReadFile,
) -> Search:
    """Return what a call of ``program`` searches, and which files it needs for that.

    ``argv`` are the words behind the program's name, ``environ`` is the process's environment.
    ``read_file`` is called for each file of patterns (``-f``) with its path as given; it returns
    the content, or None if the file is not to be read. Raises nothing of its own: what is not
    understood needs everything, and ``Search.reason`` says why.
    """
    if sum(map(len, argv)) > MAX_ARGUMENT_BYTES:
        return everything("the command line is very long")
    try:
        if program is Program.RG:
            return analyse_ripgrep(argv, environ, read_file)
        return analyse_grep(program, argv, environ, read_file)
    except NotParsed as error:
        return everything(str(error))

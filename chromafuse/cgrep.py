"""``cgrep``: grep itself, with the help of the mounts that it searches.

Executes the real grep with the arguments as they are. Only if the call may search directories, and
something of ours is mounted, is ``chromafuse.cgrep_ask`` loaded, which asks the mount's daemon to
show this process the files that can match. What goes wrong there costs the help, not the search.

Standard library only, and little of it: most calls name one file, and what start-up costs is all
that a user notices.
"""

import os
import sys

SEARCH_PATH = b"/bin:/usr/bin"
"""Where programs are without PATH, as for ``execvp``."""
CHOSEN = b"CGREP_GREP"
"""Variable with the path of the grep to execute."""
NO_PUSHDOWN = b"--no-pushdown"
EXPLAIN = b"--explain"
TROUBLE = 2
"""Exit code of grep for everything that is not an answer."""
FSTYPE = b"fuse.chromafuse"

_OPTIONS = {"egrep": b"-E", "fgrep": b"-F", "rgrep": b"-r"}
_RECURSIVE = (b"recursive", b"dereference-recursive", b"directories")
_LAUNCHER_BYTES = 4096


def main() -> None:
    """Become grep. Exits with 2, as grep does for trouble, if there is none.

    ``--no-pushdown`` or ``--explain`` as the first argument are not grep's.
    """
    _end_at_interrupts()
    program = os.path.basename(sys.argv[0])
    if program not in _OPTIONS:
        program = "grep"
    arguments = _arguments()
    environment = _environment()
    mode = arguments.pop(0) if arguments and arguments[0] in (NO_PUSHDOWN, EXPLAIN) else b""
    if mode == EXPLAIN or program == "rgrep" or _may_be_recursive(arguments):
        mounts = _mounts()
        if mode == EXPLAIN:
            from chromafuse import cgrep_explain

            sys.exit(cgrep_explain.explain(program, arguments, environment, mounts))
        if mounts:
            from chromafuse import cgrep_ask

            call = cgrep_ask.Call(program, arguments, environment)
            if mode == NO_PUSHDOWN:
                problem = cgrep_ask.widen(call, mounts)
                if problem:
                    _fail(problem)
            else:
                cgrep_ask.narrow(call, mounts)
    _become(program, arguments, environment)


def _end_at_interrupts() -> None:
    import _signal  # type: ignore[import-not-found]  # the module `signal` takes milliseconds

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def restore_signals() -> None:
    """Undo what Python has set up: what it ignores would stay so in the program executed."""
    import _signal

    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)


def _arguments() -> list[bytes]:
    """Return the arguments byte for byte: Python has decoded them by the locale."""
    count = len(sys.argv) - 1
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().split(b"\0")[:-1]
    except OSError:
        return [os.fsencode(word) for word in sys.argv[1:]]
    return words[len(words) - count :]


def _environment() -> dict[bytes, bytes]:
    """Return the environment as it was given: Python itself may have added LC_CTYPE."""
    try:
        with open("/proc/self/environ", "rb") as file:
            items = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for item in items:
        name, equals, value = item.partition(b"=")
        if equals and name:
            # Of several, `getenv` takes the first.
            found.setdefault(name, value)
    return found


def _may_be_recursive(arguments: list[bytes]) -> bool:
    """Return whether directories may be searched; where that is not sure, say so."""
    for word in arguments:
        if word == b"--":
            return False
        if word.startswith(b"--"):
            name = word[2:].partition(b"=")[0]
            if any(option.startswith(name) for option in _RECURSIVE):
                return True
        elif word.startswith(b"-") and (b"r" in word or b"R" in word or b"d" in word):
            return True
    return False


def _mounts() -> list[bytes]:
    """Return the lines of the kernel's list of mounts that are ours."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return []
    kind = b" - " + FSTYPE + b" "
    return [line for line in lines if kind in line]


def _become(program: str, arguments: list[bytes], environment: dict[bytes, bytes]) -> None:
    words = [b"grep", *arguments]
    if program in _OPTIONS:
        words.insert(1, _OPTIONS[program])
    chosen = environment.get(CHOSEN)
    if chosen:
        candidates = [chosen]
    else:
        directories = environment.get(b"PATH", SEARCH_PATH).split(b":")
        candidates = [os.path.join(directory, b"grep") for directory in directories]
    problem = b"there is no grep in PATH"
    restore_signals()
    for candidate in candidates:
        if _is_cgrep(candidate):
            if chosen:
                problem = CHOSEN + b" names cgrep itself"
            continue
        try:
            os.execve(candidate, words, environment)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            if chosen:
                problem = _told(candidate, error)
        except OSError as error:
            problem = _told(candidate, error)
    _fail(problem)


def _is_cgrep(program: bytes) -> bool:
    """Return whether a program is a script that leads to cgrep again, under whatever name."""
    try:
        with open(program, "rb") as file:
            if file.read(2) != b"#!":
                return False
            text = file.read(_LAUNCHER_BYTES).partition(b"\n")[2]
    except OSError:
        return False
    # Directories of that name do not count, nor does what a longer name is made of.
    words = text.replace(b'"', b" ").replace(b"'", b" ").split()
    return any(word == b"cgrep" or word.endswith((b"/cgrep", b".cgrep")) for word in words)


def _told(program: bytes, error: OSError) -> bytes:
    return program + b": " + os.fsencode(error.strerror or "cannot be executed")


def _fail(problem: bytes) -> None:
    try:
        os.write(2, b"cgrep: " + problem + b"\n")
    finally:
        # Standard error may be closed.
        os._exit(TROUBLE)

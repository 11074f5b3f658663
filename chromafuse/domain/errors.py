"""Every error that crosses a module border.

::

    ChromafuseError
    ├── ConfigError            the user's settings are wrong
    ├── AccessError            an access mark or token cannot be believed
    │   └── TokenError         the token is not accepted
    ├── SessionUnknown         no such session, or no hub
    ├── TreeError              the path tree is missing, damaged or of a newer format
    │   └── TreeMissing        the collection has no path tree
    ├── StoreError             a backend failed
    │   ├── StoreUnavailable   refused, timed out, overloaded: trying again later may help
    │   ├── StoreMissing       no such collection or database
    │   ├── StoreDenied        wrong credentials
    │   ├── BlobChanged        the object is another version than the tree names
    │   ├── BlobMissing        the object is gone
    │   └── BlobDenied         we may not read the object, or not even ask for it
    │       └── CredentialsRefused   ours are missing, wrong or out of date
    ├── ContentError           stored bytes are not what the tree promises
    │   └── PageReplaced       they are gone since another version of the page has come
    ├── IngestError            a source cannot be read or stored
    │   └── SwitchConflict     another ingest switched the tree in the meantime
    └── MountError             the operating system refuses the mount
        ├── MountPointError    missing, not a directory, not empty, already mounted
        ├── FuseUnavailable    no /dev/fuse, no fusermount3, option forbidden
        └── MountBusy          somebody still uses the mount

Each message is one line, says what is wrong and, in ``remedy``, what to do about it.
``exit_code`` is what the command line returns for it (documented in ``chromafuse --help``).
"""

from __future__ import annotations


class ChromafuseError(Exception):
    """Base of all errors of this package; ``str()`` is one line for a person."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        text = str(self.args[0])
        return f"{text} ({self.remedy})" if self.remedy else text


class ConfigError(ChromafuseError):
    """One or several settings are unknown or malformed."""

    exit_code = 2


class AccessError(ChromafuseError):
    """An access mark, rule file or token is malformed or refused."""

    exit_code = 2


class TokenError(AccessError):
    """A session token is malformed, expired, not yet valid or signed by nobody we trust.

    The message never holds the token or a part of it.
    """

    exit_code = 11


class SessionUnknown(ChromafuseError):
    """There is no session with this id, or no hub that could have it."""

    exit_code = 12


class TreeError(ChromafuseError):
    """The path tree cannot be understood."""

    exit_code = 7


class TreeMissing(TreeError):
    """The collection holds no path tree."""


class StoreError(ChromafuseError):
    """A backend answered with an error."""

    exit_code = 6


class StoreUnavailable(StoreError):
    """A backend did not answer in time or refused; it may come back."""


class StoreMissing(StoreError):
    """The named collection or database does not exist."""

    exit_code = 7


class StoreDenied(StoreError):
    """A backend refused our credentials."""


class BlobChanged(StoreError):
    """An object was replaced since the tree was written."""


class BlobMissing(StoreError):
    """There is no such object."""


class BlobDenied(StoreError):
    """An object's place is not configured, or its server refuses our credentials."""


class CredentialsRefused(BlobDenied):
    """The server of an object knows nobody by our credentials, or there are none."""


class ContentError(ChromafuseError):
    """Stored chunks are missing, doubled, damaged or do not add up to the page."""


class PageReplaced(ContentError):
    """A page of an earlier tree, whose bytes can no longer be had."""


class IngestError(ChromafuseError):
    """A source cannot be read, or its pages cannot be stored; the stored site is as before."""

    exit_code = 10


class SwitchConflict(IngestError):
    """Another ingest changed the site while this one ran."""

    exit_code = 4


class MountError(ChromafuseError):
    """The mount cannot be made or ended."""

    exit_code = 5


class MountPointError(MountError):
    """The mount point is missing, not a directory, not empty or already in use."""


class FuseUnavailable(MountError):
    """The machine does not let us use FUSE as asked."""

    exit_code = 8


class MountBusy(MountError):
    """A process still uses the mount."""

    exit_code = 9

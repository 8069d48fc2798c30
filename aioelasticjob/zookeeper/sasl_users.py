"""The users that may log in with SASL DIGEST-MD5, from a file with a line ``user:password`` for each."""

from pathlib import Path

from aioelasticjob.zookeeper.repeated_warning import RepeatedWarning


class UsersError(Exception):
    """The file cannot be used; the text names it and its line, and shows no password."""


class UsersFile:
    """Users whose file is read anew at each login, so that a changed password counts at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._trouble = RepeatedWarning("no client asks for a file of users that cannot be used any more")
        read_users(file)

    def get(self, user: str, /) -> str | None:
        """Return a user's password; None for an unknown user, and while the file cannot be used."""
        try:
            return read_users(self.file).get(user)
        except UsersError as error:
            self._trouble.happened(f"{error}: nobody can log in")
            return None


def read_users(file: Path) -> dict[str, str]:
    """Return the passwords by user; empty lines and lines that begin with ``#`` say nothing.

    Raises: UsersError.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsersError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsersError(f"{file} is no text in UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, password = line.partition(":")
        if not user or not password or user in found:
            raise UsersError(f"{file}:{number}: write user:password, each user once")
        found[user] = password
    return found

"""Write text files atomically."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from alpa_explore.errors import PlanFileError


def check_target(path: str | os.PathLike[str], what: str) -> Path:
    """The file that `write_text` would write, with links followed; checked before long work whose result goes there.

    PlanFileError when the folder is missing or `path` is a folder. `what` is the subject of the message ('The plan').
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise _cannot(what, f"{path} is a folder", "Give the name of a file.")
    if not target.parent.is_dir():
        raise _cannot(what, f"there is no folder {target.parent}", "Make the folder first, or choose another one.")
    return target


def write_text(path: str | os.PathLike[str], text: str, what: str) -> None:
    """Write `text` as UTF-8 to a temporary file beside `path`, and rename it to `path`.

    Nobody sees a partly written file, and an existing file is unchanged when the disk is full. A pipe or a device
    (`/dev/stdout`) is written directly. PlanFileError when writing fails.
    """
    target = check_target(path, what)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
        try:
            with temporary.open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
        except BaseException:  # also an interrupt must leave nothing behind
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        remedy = "Free some space, or write to another disk, and check that you may write there."
        raise _cannot(what, f"{path}: {error.strerror or error}", remedy) from error
    except UnicodeEncodeError as error:
        found = f"{path}: {error.object[error.start : error.end]!r} is not text"
        raise _cannot(what, found, "Rename the model or the operator that holds it.") from error


def _cannot(what: str, found: str, remedy: str) -> PlanFileError:
    return PlanFileError(f"{what} was not written", found=found, remedy=remedy)

"""What tells without reading a file that it was written or replaced."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class FileStamp:
    """Size, modification time and inode of a file. It can be compared on another machine that sees the file."""

    n_bytes: int
    modified_ns: int
    inode: int | None
    """None where the file system gives out new numbers for the same file."""

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp of a file from its status."""
        inode = None if status.st_dev in _devices_of_fuse() else status.st_ino
        return cls(status.st_size, status.st_mtime_ns, inode)

    def change(self, path: Path) -> str | None:
        """Describe how the file has changed, or return None.

        Args:
            path: The file.

        Raises:
            OSError: The file was removed, or its status cannot be read.

        >>> path = getfixture("tmp_path") / "a.txt"
        >>> _ = path.write_text("four")
        >>> stamp = FileStamp.of(path.stat())
        >>> stamp.change(path)
        >>> _ = path.write_text("fourteen")
        >>> stamp.change(path)
        'it had 4 bytes and has 8'
        """
        now = FileStamp.of(path.stat())
        if now.n_bytes != self.n_bytes:
            return f"it had {self.n_bytes:,} bytes and has {now.n_bytes:,}"
        if now.modified_ns != self.modified_ns:
            return "it was written again"
        if None not in (self.inode, now.inode) and now.inode != self.inode:
            return "it was replaced by another file"
        return None


@functools.cache
def _devices_of_fuse() -> frozenset[int]:
    """Return the device numbers of file systems in user space, such as sshfs and gcsfuse.

    Many of them number a file anew when the system has forgotten it.
    """
    devices: set[int] = set()
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not on Linux
        lines = []
    for line in lines:
        fields = line.split()
        # See proc_pid_mountinfo(5): the type of the file system follows the separator.
        if fields[fields.index("-") + 1].startswith("fuse"):
            major, minor = map(int, fields[2].split(":"))
            devices.add(os.makedev(major, minor))
    return frozenset(devices)

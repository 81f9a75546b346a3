"""Whether a descriptor's number still is the same file: a job's handler may have closed it, and opened another."""

import os

Identity = tuple[int, int]  # the number, and the inode behind it; 0 where it is closed


def identity(fd: int) -> Identity:
    try:
        return fd, os.fstat(fd).st_ino
    except OSError:
        return fd, 0


def are_the_same(*descriptors: Identity) -> bool:
    """Whether each is what identity() found; one that was closed then is nobody's concern."""
    try:
        for fd, inode in descriptors:
            if inode and os.fstat(fd).st_ino != inode:
                return False
    except OSError:
        return False
    return True

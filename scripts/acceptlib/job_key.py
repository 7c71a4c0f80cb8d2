# SPDX-License-Identifier: Apache-2.0
"""The job's key, by the rules of the plugin (src/base/job_key.h): where a job has one, whoever says something over the
network in its name proves that he has it."""

import os
import stat

BYTES = 32


class JobKeyError(Exception):
    """What is wrong with the key, and what to do."""


def load(environ):
    """Its bytes; None where there is none, or HA_NCCL_AUTH=off."""
    auth = environ.get("HA_NCCL_AUTH", "if-key").lower()
    path = environ.get("HA_NCCL_JOB_KEY_FILE")
    if auth not in ("off", "if-key", "required"):
        raise JobKeyError("HA_NCCL_AUTH is required, if-key or off")
    if auth == "off":
        return None
    if environ.get("HA_NCCL_JOB_KEY_FD"):
        raise JobKeyError("HA_NCCL_JOB_KEY_FD is for one process, and this starts several: use HA_NCCL_JOB_KEY_FILE")
    if path:
        return read(path)
    if auth == "required":
        raise JobKeyError("HA_NCCL_AUTH=required, and there is no key: set HA_NCCL_JOB_KEY_FILE")
    return None


def read(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise JobKeyError(f"no job key from {path}: {error.strerror}") from None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
            raise JobKeyError(f"no job key from {path}: it must be a regular file of yours or of root with mode 0400")
        key = file.read(BYTES + 1)
    if len(key) != BYTES or len(set(key)) == 1:
        raise JobKeyError(f"no job key from {path}: it must be {BYTES} random bytes")
    return key

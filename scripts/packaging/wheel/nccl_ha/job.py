# SPDX-License-Identifier: Apache-2.0
"""What a job needs to use the plugin, and a job that has it."""
import os
import resource
import sys

from nccl_ha import plugin

# As of a shell that cannot find or may not run a command.
NOT_FOUND, NOT_RUN = 127, 126


def names_ours(value):
    """Whether NCCL_NET_PLUGIN=value, of which NCCL tries the first first, is a name of this plugin."""
    return os.path.basename(value.split(",")[0]) in ("ha", "libnccl-net-ha.so")


def settings(environ):
    """(variables to set, lines to say). Who calls for a job with the plugin gets it, whatever an image has preset; and
    NCCL_NET makes a plugin that cannot start an error instead of a job without protection."""
    found, lines = environ.get("NCCL_NET_PLUGIN"), []
    new = {"NCCL_NET_PLUGIN": plugin()}
    if found and not names_ours(found):
        lines.append(f"NCCL_NET_PLUGIN was '{found}', and is {new['NCCL_NET_PLUGIN']} for this command")
    net = environ.get("NCCL_NET")
    if not net:
        new["NCCL_NET"] = "HA"
    elif net.upper() != "HA":
        lines.append(f"NCCL_NET is '{net}' and stays so: NCCL will not use the plugin; unset it")
    return new, lines


def lock_all_memory():
    """The limit on locked memory, as high as this user may have it."""
    _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))


def run(command):
    """Becomes the command; returns an exit status only if that fails."""
    new, lines = settings(os.environ)
    for line in lines:
        print(f"nccl_ha run: {line}", file=sys.stderr)
    os.environ.update(new)
    lock_all_memory()
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"nccl_ha run: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN

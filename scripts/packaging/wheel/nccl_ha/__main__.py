# SPDX-License-Identifier: Apache-2.0
"""python -m nccl_ha: where the plugin is, a job with it, and whether this host would be protected."""
import sys

from nccl_ha import check, job, plugin

USAGE = """\
usage: python -m nccl_ha                     prints the plugin's absolute path, for NCCL_NET_PLUGIN
       python -m nccl_ha run [--] COMMAND    becomes COMMAND, with all set that a job needs
       python -m nccl_ha check               says whether this host would be protected, and why not

run    sets NCCL_NET_PLUGIN to the plugin's path, also where an image has preset another one, which it says;
       NCCL_NET=HA unless NCCL_NET is set; and raises the limit on locked memory as far as this user may.
       Everything else in the environment stays: HA_NCCL_*, NCCL_*. Exit status: COMMAND's, 127 if it is
       not found, 126 if it cannot be run.
check  takes up to ten seconds, in which two processes of this host send each other data over its own devices.
       Exit status: 0 protected, 1 not protected, 2 wrong usage or it could not be looked at.
"""


def main(arguments):
    if not arguments:
        print(plugin())
        return 0
    what, *rest = arguments
    if what in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if what == "run":
        command = rest[1:] if rest[:1] == ["--"] else rest
        if command:
            return job.run(command)
    elif what == "check" and not rest:
        try:
            return check.check()
        except (OSError, ValueError, KeyError, StopIteration) as error:
            print(f"nccl_ha check: this host could not be looked at: {error}", file=sys.stderr)
            return check.NOT_LOOKED_AT
    print(USAGE, end="", file=sys.stderr)
    return check.NOT_LOOKED_AT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

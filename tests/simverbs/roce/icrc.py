# SPDX-License-Identifier: Apache-2.0
"""The invariant CRC of RoCE v2 a second time, from its definition and by zlib: nothing of it is the fabric's."""

import struct
import zlib

ROCE_PORT = 4791
BTH_BYTES = 12
ICRC_BYTES = 4
NOT_ROCE = None


def masked_v4(ip):
    """Type of service, time to live and header checksum may change on the way."""
    front = bytearray(ip)
    front[1] = front[8] = front[10] = front[11] = 0xFF
    return front


def masked_v6(ip):
    """Traffic class, flow label and hop limit may."""
    front = bytearray(ip)
    front[0] |= 0x0F
    front[1] = front[2] = front[3] = front[7] = 0xFF
    return front


def packet_of(frame):
    """An Ethernet frame's masked IP header, its UDP datagram and the IP version; NOT_ROCE for any other."""
    kind, ip = struct.unpack_from("!H", frame, 12)[0], frame[14:]
    if kind == 0x0800 and len(ip) >= 28 and ip[9] == 17:
        length, version, total = (ip[0] & 15) * 4, 4, struct.unpack_from("!H", ip, 2)[0]
        front = masked_v4(ip[:length])
    elif kind == 0x86DD and len(ip) >= 48 and ip[6] == 17:
        length, version, total = 40, 6, 40 + struct.unpack_from("!H", ip, 4)[0]
        front = masked_v6(ip[:length])
    else:
        return NOT_ROCE
    udp = ip[length:total]
    if len(udp) < 8 + BTH_BYTES + ICRC_BYTES or struct.unpack_from("!H", udp, 2)[0] != ROCE_PORT:
        return NOT_ROCE
    return front, udp, version


def is_right(front, udp):
    """Whether the last four bytes are the CRC of what stands before them: eight bytes of ones in the place of a local
    route header, then all of the packet with ones where it may change (UDP checksum, and in the BTH what marks
    congestion)."""
    covered = bytearray(udp[:-ICRC_BYTES])
    covered[6] = covered[7] = covered[8 + 4] = 0xFF
    return zlib.crc32(b"\xff" * 8 + front + covered) == struct.unpack("<I", udp[-ICRC_BYTES:])[0]

# SPDX-License-Identifier: Apache-2.0
"""What the lab prints: a line per drill, a summary of many rounds, and the figure that counts most."""

import dataclasses
import json
from collections import Counter

from judge import EVENT_BLACKOUT_MS, MANY, WINDOW_NS, LinkDowns, percentile

HEADER = ("drill", "detected by", "detection ms", "blackout ms", "noise ms", "replayed", "wrong bytes", "")
LEFT = (0, 1, len(HEADER) - 1)  # columns that are text


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def cells(row):
    return (
        row.drill,
        row.detected_by,
        number(row.detection_ms),
        number(row.blackout_ms),
        number(row.noise_ms),
        str(row.replayed),
        number(row.wrong, 0),
        "FAILED" if row.complaints else "ok",
    )


def layout(header, lines):
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i in LEFT else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip()
        for line in (header, *lines)
    )


def of_rows(rows):
    """The table, and below it what there is to complain of."""
    lines = [layout(HEADER, [cells(row) for row in rows])]
    for row in rows:
        lines += [f"{row.drill}: {text}" for text in row.notes]
        lines += [f"{row.drill} FAILED: {text}" for text in row.complaints]
    return "\n".join(lines)


def of_drills(drills, lab):
    """What there is in this lab."""
    lines = [(drill.name, "short" if lab in drill.short else "", drill.workload, drill.proves) for drill in drills]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return "\n".join(
        "  ".join((*(cell.ljust(w) for cell, w in zip(line, widths)), line[-1])) for line in lines
    )


def of_rounds(rounds):
    """A line per drill over several rounds."""
    header = ("drill", "detected by", "detection ms p50", "max", "blackout ms p50", "max", "wrong bytes", "passed")
    by_drill = {}
    for rows in rounds:
        for row in rows:
            by_drill.setdefault(row.drill, []).append(row)
    lines = []
    for name, rows in by_drill.items():
        reasons = Counter(row.detected_by for row in rows)
        detections = [row.detection_ms for row in rows if row.detection_ms is not None]
        blackouts = [row.blackout_ms for row in rows if row.blackout_ms is not None]
        lines.append(
            (
                name,
                "; ".join(reason for reason, _ in reasons.most_common(2)),
                number(percentile(detections, 50) if detections else None),
                number(max(detections, default=None)),
                number(percentile(blackouts, 50) if blackouts else None),
                number(max(blackouts, default=None)),
                str(sum(row.wrong or 0 for row in rows)),
                f"{sum(not row.complaints for row in rows)} of {len(rows)}",
            )
        )
    return layout(header, lines)


def of_events(rows):
    """Blackouts after ports said that they were down, against the noise of the same traffic."""
    downs = LinkDowns.of(rows)
    if not downs:
        return ""
    few = f"; the limit is for {MANY} and more" if downs.number < MANY else ""
    return (
        f"link down, {downs.number} times: blackout {downs.blackout:.1f} ms (95th percentile), "
        f"{downs.beyond_ms(downs.blackout):.1f} ms beyond the noise of {downs.noise:.1f} ms\n"
        f"after the kernel had told, in which the guests ran: {downs.ran:.1f} ms, {downs.beyond_ms(downs.ran):.1f} ms "
        f"beyond it; limit {EVENT_BLACKOUT_MS:.0f} ms{few}\n"
        f"noise: the longest pause of the same traffic in the {WINDOW_NS // 1_000_000} ms before"
    )


def as_json(rounds):
    return json.dumps(
        {"layout": 1, "rounds": [[dataclasses.asdict(row) for row in rows] for rows in rounds]}, indent=1
    )

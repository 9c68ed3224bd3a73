#!/usr/bin/env python3
"""Counts what the last `meson test` ran: `N passed, N failed, N skipped`; fails if any test failed.

    tally.py BUILD_FOLDER

A program that reports its own cases (doctest's summary, or a line of that form) counts as those, any
other test as one.
"""

import json
import os
import re
import sys

SUMMARY = re.compile(r"\b(\d+) passed, (\d+) failed, (\d+) skipped")
DOCTEST = re.compile(r"\[doctest\] test cases: +\d+ \| +(\d+) passed \| +(\d+) failed")


def count(test):
    """Passed, failed and skipped of one test of Meson's log."""
    if test["result"] == "SKIP":
        return 0, 0, 1
    output = re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout", ""))
    # What doctest calls skipped is what a filter left to another phase of the same program.
    reports = [(*found, 0) for found in DOCTEST.findall(output)] or SUMMARY.findall(output)
    # Ranks of one MPI program report the same cases: the worst report stands for all.
    passed, failed, skipped = max(
        ((int(p), int(f), int(s)) for p, f, s in reports), key=lambda report: report[1], default=(0, 0, 0))
    if test["result"] in ("OK", "EXPECTEDFAIL"):
        return (passed, failed, skipped) if reports else (1, 0, 0)
    # It failed; if no case says so, it crashed, hung, or was stopped by a sanitizer.
    return passed, max(failed, 1), skipped


def main():
    """Prints the sum."""
    with open(os.path.join(sys.argv[1], "meson-logs", "testlog.json"), encoding="utf-8") as log:
        counts = [count(json.loads(line)) for line in log]
    passed, failed, skipped = map(sum, zip(*counts)) if counts else (0, 0, 0)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


sys.exit(main())

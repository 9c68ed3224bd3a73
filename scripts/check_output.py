#!/usr/bin/env python3
"""Runs a program and compares what it prints with a stored file.

    check_output.py EXPECTED COMMAND [ARGUMENT...]
    check_output.py --fails EXPECTED COMMAND [ARGUMENT...]

`{*}` in a stored line stands for any text: times, say. `{...}` as a line of its own stands for any
number of lines. With --fails the program must end with an exit code of its own choice (not by a
signal), and every stored line must be among those it prints, errors included, in any order: ranks
print when they like, and launchers add their own.
"""

import re
import subprocess
import sys


def pattern(line):
    """A regular expression for one stored line."""
    return r"[^\n]*".join(re.escape(part) for part in line.split("{*}"))


def problem(fails, expected, code, printed):
    """What is wrong, or nothing."""
    lines = expected.splitlines()
    if fails:
        if not 0 < code < 128:
            return f"exit code {code}, expected a failure"
        missing = [line for line in lines if not any(map(re.compile(pattern(line)).fullmatch, printed.splitlines()))]
        return "not printed: " + "\n             ".join(missing) if missing else None
    if code != 0:
        return f"exit code {code}"
    whole = "".join(r"(?:[^\n]*\n)*?" if line.strip() == "{...}" else pattern(line) + r"\n" for line in lines)
    return None if re.fullmatch(whole, printed) else "another output"


def main():
    """Says what is wrong, with all that was printed."""
    arguments = sys.argv[1:]
    fails = arguments[0] == "--fails"
    expected_file, *command = arguments[1:] if fails else arguments
    with open(expected_file, encoding="utf-8") as stored:
        expected = stored.read()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if fails else None, text=True, check=False)
    wrong = problem(fails, expected, done.returncode, done.stdout)
    if wrong:
        print(f"{wrong}\n---- expected ({expected_file})\n{expected}---- printed\n{done.stdout}----")
    return bool(wrong)


sys.exit(main())

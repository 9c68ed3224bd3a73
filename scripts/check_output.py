#!/usr/bin/env python3
"""Runs a program and compares what it prints with a stored file.

    check_output.py EXPECTED COMMAND [ARGUMENT...]

`{*}` in a stored line stands for any text: times, say. `{...}` as a line of its own stands for any
number of lines.
"""

import re
import subprocess
import sys


def pattern(line):
    """A regular expression for one stored line."""
    if line.strip() == "{...}":
        return r"(?:[^\n]*\n)*?"
    return r"[^\n]*".join(re.escape(part) for part in line.split("{*}")) + r"\n"


def main():
    """Fails with the program's own exit code, or if its output is another."""
    expected_file, command = sys.argv[1], sys.argv[2:]
    with open(expected_file, encoding="utf-8") as stored:
        expected = stored.read()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout)
        print(f"exit code {done.returncode} of {' '.join(command)}")
        return done.returncode
    if re.fullmatch("".join(map(pattern, expected.splitlines())), done.stdout):
        return 0
    print(f"---- expected ({expected_file})\n{expected}---- printed\n{done.stdout}----")
    return 1


sys.exit(main())

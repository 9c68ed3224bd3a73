#!/usr/bin/env python3
"""Checks that mistakes do not compile, and that the compiler says why.

    check.py SOURCE -- COMPILER [FLAG...]

SOURCE holds a correct program and variations of it, each with a mistake:

    #ifdef CASE_two_exchanges
    // case: two_exchanges
    // expect: exchange.*given twice
    ... the mistake ...
    #else
    ... the same, done right ...
    #endif

Without a CASE_ macro it must compile. With CASE_name it must fail, and each `expect` of that case, a
regular expression, must be found in one line of the compiler's errors or notes. Output that merely
echoes source lines does not count.
"""

import concurrent.futures
import os
import re
import subprocess
import sys


def read_cases(source):
    """The cases of a source: a list of (name, list of regular expressions)."""
    cases = []
    with open(source, encoding="utf-8") as lines:
        for line in lines:
            if found := re.match(r"\s*// case: (\w+)\s*$", line):
                cases.append((found[1], []))
            elif found := re.match(r"\s*// expect: (.+?)\s*$", line):
                if not cases:
                    sys.exit(f"{source}: an `expect` before the first `case`")
                cases[-1][1].append(found[1])
    for name, expectations in cases:
        if not expectations:
            sys.exit(f"{source}: case {name} expects nothing")
    if len({name for name, _ in cases}) != len(cases) or not cases:
        sys.exit(f"{source}: needs cases, each with a name of its own")
    return cases


def compile_case(command, source, name):
    """Whether it compiles, and what the compiler says."""
    macro = [f"-DCASE_{name}"] if name else []
    done = subprocess.run(
        command + macro + ["-fsyntax-only", source],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, "LC_ALL": "C"}, check=False,
    )
    return done.returncode == 0, done.stdout


def check(command, source, name, expectations):
    """What is wrong with a case: a list of sentences."""
    compiles, output = compile_case(command, source, name)
    if name is None:
        return [] if compiles else [f"the correct program does not compile:\n{output}"]
    if compiles:
        return ["compiles, though it must not"]
    said = [line for line in output.splitlines() if re.search(r"\b(error|note): ", line)]
    return [
        f"no error matches: {expected}\nThe compiler's first lines:\n" + "\n".join(said[:12])
        for expected in expectations
        if not any(re.search(expected, line) for line in said)
    ]


def main():
    """Runs all cases of one source, as many at a time as there are cores."""
    split = sys.argv.index("--")
    source, command = sys.argv[1], sys.argv[split + 1:]
    cases = [(None, []), *read_cases(source)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda case: check(command, source, *case), cases))
    for (name, _), problems in zip(cases, results):
        print("FAILED" if problems else "passed", name or "(the correct program)")
        for problem in problems:
            print("  " + problem.replace("\n", "\n    "))
    failed = sum(bool(problems) for problems in results)
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


sys.exit(main())

#!/usr/bin/env python3
"""Renders docs/performance.md and its plots from the lines that scripts/bench.sh kept.

    render_performance.py FOLDER                        all of it
    render_performance.py --head COMMAND                the first line of a file of results
    render_performance.py --training EXCHANGE DENSITY   a line of results from what 04_train_mnist prints
"""
import collections
import json
import pathlib
import platform
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLOTS = ROOT / "docs" / "plots"


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"flags\s*: (.*)", text)
    isa = next((name for flag, name in [("avx512f", "AVX-512"), ("avx2", "AVX2")] if flags and flag in flags[1].split()), "")
    cores = text.count("processor\t")
    return f"{model[1] if model else platform.machine()}, {cores} cores" + (f", {isa}" if isa else "")


def head(command):
    print(json.dumps({"machine": machine(), "date": time.strftime("%Y-%m-%d"), "command": command}))


def training(exchange, density):
    """What a training says at its end: accuracy, and bytes that a rank sends in a step."""
    text = sys.stdin.read()
    row = re.findall(r"^.*?\s([\d.]+) %\s+([\d ]+?)\s\s", text, re.M)
    if not row:
        sys.exit("04_train_mnist printed no table:\n" + text)
    accuracy, spaced = row[-1]
    print(json.dumps({"exchange": exchange, "density": float(density), "accuracy": float(accuracy),
                      "bytes": int(spaced.replace(" ", ""))}))


class Results:
    def __init__(self, folder):
        self.files = {}
        for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            self.files[path.stem] = (lines[0], lines[1:])

    def matching(self, pattern):
        for name, (first, rows) in self.files.items():
            found = re.fullmatch(pattern, name)
            if found:
                yield found, first, rows


def table(columns, rows):
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


def source(first, command=None):
    return f"*{first['machine']}; {first['date']}; `{command or first['command']}`*"


def milliseconds(seconds):
    return f"{1e3 * seconds:.0f}" if seconds >= 1 else f"{1e3 * seconds:.3g}"


def plot(name, title, xlabel, ylabel, series, first, command, logx=False, logy=False, bars=False):
    """series: {label: [(x, y)]}. Writes docs/plots/NAME.svg by gnuplot; returns the Markdown that shows it."""
    PLOTS.mkdir(exist_ok=True)
    note = f"{first['machine']}; {first['date']}; {command}".replace('"', "'")
    script = [
        "set terminal svg size 760,460 font 'sans,12' background rgb 'white'",
        f"set output '{PLOTS / name}.svg'",
        f"set title \"{title}\"",
        f"set label \"{note}\" at screen 0.02,0.02 font 'sans,8' noenhanced",
        "set bmargin 5.5", f"set xlabel '{xlabel}'", f"set ylabel '{ylabel}'", "set key outside right", "set grid",
    ]
    if logx:
        script.append("set logscale x 2")
    if logy:
        script.append("set logscale y")
    blocks = []
    for label, points in series.items():
        blocks.append((label, "\n".join(f"{x} {y}" for x, y in sorted(points))))
    for i, (label, data) in enumerate(blocks):
        script.append(f"$data{i} << EOD\n{data}\nEOD")
    style = "with points pt 7 ps 1.2" if bars else "with linespoints pt 7 ps 0.6"
    script.append("plot " + ", ".join(f"$data{i} using 1:2 {style} title '{label}' noenhanced"
                                      for i, (label, _) in enumerate(blocks)))
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)
    return f"![{title}](plots/{name}.svg)\n"


def stacked(name, title, parts, rows, first, command):
    """rows: (label, [seconds of each part])."""
    PLOTS.mkdir(exist_ok=True)
    note = f"{first['machine']}; {first['date']}; {command}".replace('"', "'")
    data = "\n".join(f'"{label}" ' + " ".join(f"{1e3 * x:.4g}" for x in values) for label, values in rows)
    script = [
        "set terminal svg size 760,460 font 'sans,12' background rgb 'white'", f"set output '{PLOTS / name}.svg'",
        f"set title '{title}'", f"set label \"{note}\" at screen 0.02,0.02 font 'sans,8' noenhanced",
        "set bmargin 11", "set style data histograms", "set style histogram rowstacked", "set style fill solid 0.8",
        "set boxwidth 0.7", "set xtics rotate by -35 noenhanced", "set ylabel 'milliseconds a step'", "set grid ytics",
        f"$data << EOD\n{data}\nEOD",
        "plot " + ", ".join(f"$data using {i + 2}{':xtic(1)' if i == 0 else ''} title '{part}'" for i, part in enumerate(parts)),
    ]
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)
    return f"![{title}](plots/{name}.svg)\n"


def render_allreduce(results):
    files = list(results.matching(r"allreduce-(\d+)"))
    if not files:
        return
    yield "## One machine, shared memory\n"
    yield ("Whole steps, selection and residual included, beside `MPI_Allreduce` of the dense gradient, run in turn with each. "
           "`ratio` is over that baseline's time: below 1 is faster. All ranks share one path to memory.\n")
    for found, first, rows in sorted(files, key=lambda f: int(f[0][1])):
        yield f"### {found[1]} ranks, n = {rows[0]['n']:,}, {100 * rows[0]['density']:g} %\n"
        yield source(first) + "\n"
        yield from table(["exchange", "step ms", "select ms", "exchange ms", "apply ms", "`MPI_Allreduce` ms", "ratio", "bytes a rank sends"],
                         [(r["name"], milliseconds(r["seconds"]), milliseconds(r["select"]), milliseconds(r["exchange"]),
                           milliseconds(r["apply"]), milliseconds(r["baseline"]), f"{r['ratio_to_baseline']:.2f}", f"{r['bytes']:,}")
                          for r in rows])
        if found[1] == "4":
            yield stacked("stages", "Time by stage, 4 ranks through shared memory", ["select", "exchange", "apply"],
                          [(r["name"], [r["select"], r["exchange"], r["apply"]]) for r in rows if r["name"] != "dense"],
                          first, first["command"])


def render_shaped(results):
    files = list(results.matching(r"shaped-(\d+)"))
    if not files:
        return
    yield "## TCP over links of 1 Gbit/s\n"
    yield ("Real processes, each in a network namespace whose link is shaped to 1 Gbit/s both ways (`scripts/shaped.sh`). `faster` is the "
           "dense `MPI_Allreduce`'s time, run in turn, over the step's. `bound` is what is left if sending the rank's bytes at the full rate "
           "and selecting were all. A shaped link lets 256 kB through at once after a pause, which is most of the shortest messages: steps of less "
           "than that are limited by latency and work, not by the rate.\n")
    for found, first, rows in sorted(files, key=lambda f: int(f[0][1])):
        yield f"### {found[1]} ranks, n = {rows[0]['n']:,}, {100 * rows[0]['density']:g} %\n"
        yield source(first) + "\n"
        yield from table(["exchange", "step ms", "bound ms", "`MPI_Allreduce` ms", "faster", "bytes a rank sends"],
                         [(r["name"], milliseconds(r["seconds"]), milliseconds(r["bound"]), milliseconds(r["baseline"]),
                           f"{1 / r['ratio_to_baseline']:.1f} x", f"{r['bytes']:,}") for r in rows])


def pair(row):
    return row["exchange"] + ("" if row["codec"] in ("raw", "none") else f", {row['codec']}")


def scale_rows(results, kind):
    """(platform, n, density) -> {pair: {ranks: (seconds, communication, bytes)}}, and a head."""
    grid = collections.defaultdict(lambda: collections.defaultdict(dict))
    first = None
    communication = {}
    for found, head_line, rows in results.matching(rf"scale-{kind}-.*-(25gbit|10gbit)-(\d+)-no"):
        for r in rows:
            communication[found[1], r["n"], r["density"], pair(r), r["ranks"]] = r["seconds"]
    for found, head_line, rows in results.matching(rf"scale-{kind}-.*-(25gbit|10gbit)-(\d+)-yes"):
        first = head_line
        for r in rows:
            key = found[1], r["n"], r["density"], pair(r), r["ranks"]
            grid[key[:3]][key[3]][r["ranks"]] = (r["seconds"], communication.get(key), r["bytes"])
    return first, grid


PLATFORM = {"25gbit": "25 Gbit/s, 5 us", "10gbit": "10 Gbit/s, 20 us"}


def render_scale(results):
    first, weak = scale_rows(results, "weak")
    if not weak:
        return
    yield "## A simulated cluster\n"
    yield ("The library's own code over SimGrid's SMPI (`bench/scale`): ranks are simulated on a cluster with one switch, their computation is "
           "timed on this machine and added to the simulated time. Cells: milliseconds a step, of them communication (the same run with "
           "computation that takes no time); results as entries, selection included. - : left out, its lists for all ranks would not fit "
           "this machine. Every rank has n values (weak scaling); the communication of the same step is the same in every run, its computation is "
           "as noisy as the machine.\n")
    yield source(first, "scripts/bench.sh scale") + "\n"
    for (name, n, density), pairs in sorted(weak.items()):
        ranks = sorted({p for row in pairs.values() for p in row})
        yield f"### {PLATFORM[name]}, n = {n:,}, {100 * density:g} %\n"
        yield from table(["exchange"] + [f"P = {p}" for p in ranks] + [f"bytes, P = {ranks[-1]}"],
                         [[label] + [f"{milliseconds(row[p][0])} ({milliseconds(row[p][1])})" if p in row and row[p][1] is not None else "-" for p in ranks]
                          + [f"{row[ranks[-1]][2]:,.0f}" if ranks[-1] in row else "-"] for label, row in pairs.items()])
    chosen = [key for key in weak if key[0] == "25gbit" and key[1] == 1 << 20]
    for key in sorted(chosen):
        tag = f"{100 * key[2]:g}-percent"
        about = f"n = {key[1]:,}, {100 * key[2]:g} %, {PLATFORM[key[0]]}"
        yield plot(f"time-{tag}", f"Time against P: {about}", "ranks", "milliseconds a step",
                   {label: [(p, 1e3 * v[0]) for p, v in row.items()] for label, row in weak[key].items()}, first,
                   "scripts/bench.sh scale", logx=True, logy=True)
        yield plot(f"bytes-{tag}", f"Bytes against P: {about}", "ranks", "bytes that a rank sends in a step",
                   {label: [(p, v[2]) for p, v in row.items()] for label, row in weak[key].items()}, first,
                   "scripts/bench.sh scale", logx=True, logy=True)
    yield from render_choices(results)
    first, strong = scale_rows(results, "strong")
    for (name, n, density), pairs in sorted(strong.items()):
        ranks = sorted({p for row in pairs.values() for p in row})
        yield f"### A gradient of n = {n:,} on few ranks, {PLATFORM[name]}, {100 * density:g} %\n"
        yield from table(["exchange"] + [f"P = {p}" for p in ranks],
                         [[label] + [f"{milliseconds(row[p][0])} ({milliseconds(row[p][1])})" if p in row and row[p][1] is not None else "-" for p in ranks]
                          for label, row in pairs.items()])
    real = results.files.get("scale-check-real")
    simulated = results.files.get("scale-check-simulated")
    if real and simulated:
        yield "### The simulator against real ranks\n"
        yield ("4 processes over TCP and links shaped to 1 Gbit/s, and the same simulated (1 Gbit/s, 50 us). Real ranks share 2 cores, "
               "simulated ones have one each.\n")
        yield source(real[0]) + "\n"
        told = {pair(r): r["seconds"] for r in simulated[1]}
        yield from table(["exchange", "real ms", "simulated ms", "real over simulated"],
                         [(pair(r), milliseconds(r["seconds"]), milliseconds(told[pair(r)]), f"{r['seconds'] / told[pair(r)]:.2f}")
                          for r in real[1] if pair(r) in told])


def render_choices(results):
    """What `automatic` chose by its formulas, beside the best of its candidates."""
    rows = []
    for found, first, lines in results.matching(r"scale-weak-.*-(25gbit|10gbit)-(\d+)-yes"):
        seconds = {r["exchange"]: r["seconds"] for r in lines if r["codec"] == "raw"}
        chosen = next((r["chosen"] for r in lines if r["exchange"] == "automatic"), None)
        candidates = {c: seconds[c] for c in ("gather_all", "recursive_doubling", "ok_topk", "interleaved_quota") if c in seconds}
        if chosen not in candidates:
            continue
        best = min(candidates, key=candidates.get)
        r = lines[0]
        rows.append((PLATFORM[found[1]], r["ranks"], f"{r['n']:,}", f"{100 * r['density']:g} %", chosen, best,
                     f"{candidates[chosen] / candidates[best]:.2f}"))
    if not rows:
        return
    yield "### What `automatic` chooses\n"
    yield ("By its formulas, told the links' alpha and beta; beside the best of its candidates in the tables above, and the time of its choice "
           "over that one's.\n")
    yield from table(["links", "P", "n", "density", "chosen", "best", "time over the best's"],
                     sorted(rows, key=lambda r: (r[0], int(r[2].replace(",", "")), r[3], r[1])))


def render_select(results):
    if "select" not in results.files:
        return
    first, rows = results.files["select"]
    yield "## Selection\n"
    yield "Time over `residual[i] += gradient[i]`, timed beside it; what the rows are, and their bars, stands in [selection.md](selection.md).\n"
    yield source(first) + "\n"
    yield from table(["what", "density", "values", "path", "ratio"],
                     [(r["name"], f"{100 * r['density']:g} %", r["value_type"], r["isa"], f"{r['ratio_to_floor']:.2f}") for r in rows])


def render_codec(results):
    if "codec" not in results.files:
        return
    first, rows = results.files["codec"]
    yield "## Codecs\n"
    yield "Encoding and decoding k entries, as a share of `residual[i] += gradient[i]` over all n values; see [codecs.md](codecs.md).\n"
    yield source(first) + "\n"
    yield from table(["codec", "density", "bits an entry", "share of the pass", "encode ns an entry", "decode ns an entry"],
                     [(r["name"], f"{100 * r['density']:g} %", f"{r['bits_an_entry']:.1f}", f"{r['ratio_to_floor']:.3f}",
                       f"{r['encode_ns']:.2f}", f"{r['decode_ns']:.2f}") for r in rows])


def render_training(results):
    if "training" not in results.files or not results.files["training"][1]:
        return
    first, rows = results.files["training"]
    yield "## Convergence against bytes\n"
    yield "A small network on real digits, one seed; [convergence.md](convergence.md) has three.\n"
    yield source(first) + "\n"
    yield from table(["exchange", "density", "test accuracy", "bytes a rank sends in a step"],
                     [(r["exchange"], "-" if r["exchange"] == "dense" else f"{100 * r['density']:g} %", f"{r['accuracy']:.1f} %", f"{r['bytes']:,}") for r in rows])
    series = collections.defaultdict(list)
    for r in rows:
        series[r["exchange"]].append((r["bytes"], r["accuracy"]))
    yield plot("convergence", "Test accuracy against bytes", "bytes that a rank sends in a step", "test accuracy, %", series, first,
               first["command"], logx=True, bars=True)


def render(folder):
    results = Results(folder)
    text = ["# Performance\n",
            "All figures and plots of this page come from `scripts/bench.sh`; nothing is filled in by hand. Each says on which machine, when and by "
            "what it was measured. Ratios are to a baseline that ran beside it.\n"]
    for part in (render_allreduce, render_shaped, render_scale, render_select, render_codec, render_training):
        text.extend(part(results))
    page = "\n".join(text)
    (ROOT / "docs" / "performance.md").write_text(re.sub(r"\n{3,}", "\n\n", page).rstrip("\n") + "\n")


def main():
    match sys.argv[1:]:
        case ["--head", command]:
            head(command)
        case ["--training", exchange, density]:
            training(exchange, density)
        case [folder]:
            render(folder)
        case _:
            sys.exit(__doc__)


main()

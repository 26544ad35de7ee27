"""Files and commands that nobody means well with: mutated by a seed, and each must end in order.

``python tests/fuzz.py --cases 10000`` runs them in a process of its own, and ends with a count.
A case is in order if it does what was asked or refuses with an error of the library; a command, if
it ends with 0, 1 or 2. Tracebacks, signals, hangs and memory above a gigabyte are faults.
"""

import argparse
import gzip
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

KINDS = ("model", "table", "checkpoint", "command")
SHARES = (50, 35, 10, 5)
SECONDS = 20  # that a case may take, on a machine that has others to do
MEGABYTES = 1000
NUMBERS = (0, -1, 1, 2, 7, 255, 2**31, 2**53 + 1, 2**63, 10**19, -0.0, 1e-320, 1e308, 1e999)
WORDS = ("", "nan", "-inf", "\x00", "\x1b[31m", "=1+1", "../x", "a" * 300, "é", "NULL")


def main() -> None:
    """Run cases, all of them or those of one number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="of the worker, which runs the cases itself")
    options = parser.parse_args()
    if options.folder is not None:
        work(options.folder, options.seed, options.first, options.cases)
        return
    faults, count = [], Counter()
    with tempfile.TemporaryDirectory() as name:
        first = options.first
        while first < options.cases:
            first = watch(Path(name), options.seed, first, options.cases, count, faults)
    ended = ", ".join(f"{number:,} {what}" for what, number in sorted(count.items()))
    print(f"{options.cases - options.first:,} cases of seed {options.seed}: {ended}")
    for fault in faults:
        print(f"FAULT {fault}")
    sys.exit(bool(faults))


def watch(folder, seed, first, last, count, faults) -> int:
    """Follow a worker until it ends, and return the case to go on with."""
    command = [sys.executable, __file__, "--folder", str(folder), "--seed", str(seed)]
    command += ["--first", str(first), "--cases", str(last)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    case = first
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as worker:
        while True:
            ready, _, _ = select.select([worker.stdout], [], [], 120 + 3 * SECONDS)
            line = worker.stdout.readline() if ready else b"hang"
            if not line.endswith(b"\n"):
                if line == b"" and worker.wait(3 * SECONDS) == 0:
                    return last
                worker.kill()
                faults.append(f"case {case}: hang" if line else f"case {case}: {worker.wait()}")
                count["faults"] += 1
                return case + 1
            word, _, rest = line.decode().strip().partition(" ")
            if word == "begin":
                case = int(rest)
            elif word == "fault":
                faults.append(rest)
                count["faults"] += 1
            elif word == "end":
                count[rest] += 1


def work(folder: Path, seed: int, first: int, last: int) -> None:
    """Run cases one after another, telling of each how it ended."""
    out = os.fdopen(os.dup(1), "w", buffering=1)  # what commands print goes elsewhere
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    signal.signal(signal.SIGALRM, give_up)
    originals = make_originals(folder / "originals")
    for case in range(first, last):
        print(f"begin {case}", file=out)
        signal.alarm(SECONDS)
        try:
            print(f"end {run_case(case, seed, originals, folder / 'case')}", file=out)
        except BaseException as error:
            signal.alarm(0)
            told = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"fault case {case} of seed {seed}: {told[:300]}", file=out)
        signal.alarm(0)
        if peak() > MEGABYTES:
            print(f"fault case {case} of seed {seed}: {peak():.0f} MB", file=out)
            return


def give_up(number, frame) -> None:
    raise TimeoutError("hang")


def peak() -> float:
    """Return the most memory that this process ever had, in megabytes."""
    status = Path("/proc/self/status")
    return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024 if status.exists() else 0


def run_case(case: int, seed: int, originals: dict, folder: Path) -> str:
    """Run one case, and return how it ended; whatever is not in order is raised."""
    from bnaf import BnafError

    chance = random.Random(f"{seed}:{case}")
    kind = chance.choices(KINDS, SHARES)[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ended = RUNS[kind](chance, originals, folder)
        except BnafError:
            ended = "refused"
    return f"{kind}s {ended}"


def make_originals(folder: Path) -> dict:
    """Write files that are in order, by kind."""
    import numpy as np
    import torch
    from kinds import fit_kinds, kinds_frame
    from vaes import small_vae

    import bnaf
    from bnaf.tables.frames import read_frame
    from bnaf.tables.table import Table
    from bnaf.tables.writing import write_table
    from bnaf.vae import save_vae

    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    rows[:, 2] = (3 * rows[:, 2]).round()
    table = Table(rows, ("a", "b", "k"), ("float64", "float32", "int16"))
    settings = bnaf.TrainingSettings(steps=3)
    for name, given in (("m", []), ("c", ["b"])):
        model = bnaf.Model.fit(table, given=given, settings=settings, progress=False)
        bnaf.save(model, folder / f"{name}.safetensors")
    for flow in ("glow", "planar"):
        model = bnaf.Model.fit(table, flow=flow, settings=settings, progress=False)
        bnaf.save(model, folder / f"{flow}.safetensors")
    averaged = bnaf.Model.fit(
        table.select(["a", "b"]), given=["b"], members=2, settings=settings, progress=False
    )
    bnaf.save(averaged, folder / "e.safetensors")
    kinds = kinds_frame(40)
    bnaf.save(fit_kinds(kinds), folder / "k.safetensors")
    for name in ("t.kinds.csv", "t.kinds.parquet"):
        write_table(read_frame(kinds), folder / name, overwrite=True)
    save_vae(small_vae(), folder / "run.vae")
    for name in ("t.csv", "t.parquet", "t.npy"):
        write_table(table, folder / name, overwrite=True)
    np.savez_compressed(folder / "t.npz", a=rows.numpy())
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    (folder / "run.ckpt").unlink(missing_ok=True)
    resume(folder / "run.ckpt")
    paths = list(folder.iterdir())
    return {
        "model": sorted(path for path in paths if path.suffix == ".safetensors"),
        "table": sorted(path for path in paths if path.name.startswith("t.")),
        "checkpoint": [folder / "run.ckpt"],
        "vae": [folder / "run.vae"],
        "folder": folder,
    }


def resume(checkpoint: Path) -> None:
    """Run a small fit, or go on with it."""
    import torch

    import bnaf

    with torch.random.fork_rng():
        torch.manual_seed(0)
        flow = bnaf.BNAF(2, transforms=1, hidden_layers=1, width=2)
    rows = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    settings = bnaf.TrainingSettings(steps=4, evaluate_every=2)
    bnaf.fit(flow, rows, settings=settings, checkpoint=checkpoint, progress=False)


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them flipped, cut, doubled or written over."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        place = chance.randrange(len(data) + 1)
        length = min(chance.choice((1, 2, 8, 64, 1000)), len(data) - place)
        way = chance.randrange(6)
        if way <= 1 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif way == 2:
            del data[place : place + length]
        elif way == 3:
            data[place:place] = data[place : place + length]
        elif way == 4:
            data[place : place + length] = chance.randbytes(length)
        else:
            spans = [span.span() for span in re.finditer(rb"\d+", bytes(data[:4000]))]
            start, end = chance.choice(spans or [(place, place)])
            data[start:end] = str(chance.choice(NUMBERS)).encode()
    return bytes(data)


def distort(value, chance: random.Random):
    """Return something that JSON can hold with a part of it changed."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        if chance.random() < 0.1:
            return {key: part for key, part in value.items() if key != name}
        return value | {name: distort(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], distort(value[place], chance), *value[place + 1 :]]
    return chance.choice((*NUMBERS, *WORDS, None, True, [], {}, [[1]], {"a": 1}, [value] * 3))


def forge(source: Path, target: Path, key: str, chance: random.Random) -> None:
    """Write a file with a changed header or changed tensors, and a digest that is right again."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    from bnaf._digest import digest_contents

    with safe_open(source, framework="pt") as file:
        header = json.loads(file.metadata()[key])
    tensors = load_file(source)
    if chance.random() < 0.6:
        header = distort(header, chance)
    else:
        name = chance.choice(list(tensors))
        tensor = tensors[name]
        changes = [
            lambda: torch.full_like(tensor, chance.choice((0, 1, -5, 100))),
            lambda: tensor.flatten()[1:],
            lambda: tensor.to(chance.choice((torch.int64, torch.float16, torch.bool))),
            lambda: (tensor.double() * chance.choice((1e30, -1, torch.nan))).to(tensor.dtype),
            lambda: tensor.unsqueeze(0),
            lambda: torch.randint(-9, 9, tensor.shape).to(tensor.dtype),
        ]
        tensors[name] = chance.choice(changes)().contiguous().clone()
    text = json.dumps(header)
    save_file(tensors, target, {key: text, "sha256": digest_contents(text, tensors)})


def run_model(chance: random.Random, originals: dict, folder: Path) -> str:
    import torch
    from vaes import rows_of, small_vae

    import bnaf
    from bnaf.vae import load_vae

    source = chance.choice(originals["model"] + originals["vae"])
    target = odd_model(source, chance, folder)
    if source in originals["vae"]:
        whole = small_vae()
        vae = load_vae(target, whole.encoder, whole.decoder, dtype=torch.float64)
        vae.elbo(rows_of(whole, 3))
        return "loaded"
    model = bnaf.load(target)
    model = model if isinstance(model, bnaf.Model) else bnaf.Model(model)
    given = torch.zeros(len(model.given_columns)) if model.given_columns else None
    drawn = model.sample(3, given, seed=0, outside="redraw")
    model.log_prob(torch.randn(5, model.features) if model.encoding.noisy else drawn, given)
    return "loaded"


def odd_model(source: Path, chance: random.Random, folder: Path) -> Path:
    """Write a model file that is mutated, or forged with a digest that is right."""
    import torch

    target = folder / "odd.safetensors"
    if chance.random() < 0.6:
        torch.manual_seed(chance.randrange(2**31))
        forge(source, target, "bnaf", chance)
    else:
        target.write_bytes(mutate(source.read_bytes(), chance))
    return target


def run_checkpoint(chance: random.Random, originals: dict, folder: Path) -> str:
    (source,), target = originals["checkpoint"], folder / "run.ckpt"
    if chance.random() < 0.5:
        forge(source, target, "bnaf.checkpoint", chance)
    else:
        target.write_bytes(mutate(source.read_bytes(), chance))
    resume(target)
    return "resumed"


def run_table(chance: random.Random, originals: dict, folder: Path) -> str:
    import bnaf
    from bnaf.tables.frames import read_frame

    table = odd_table(chance, originals, folder)
    if chance.random() < 0.5:
        read_frame(table, header=chance.random() < 0.8)
        return "read"
    bnaf.read_table(
        table,
        drop_missing=chance.random() < 0.5,
        drop_constant=chance.random() < 0.3,
        dequantise=chance.random() < 0.3,
        header=chance.random() < 0.8,
    )
    return "read"


def odd_table(chance: random.Random, originals: dict, folder: Path) -> Path:
    """Write a table that is mutated, or odd in its names and values."""
    source = chance.choice(originals["table"])
    if chance.random() < 0.6:
        target = folder / source.name
        content = source.read_bytes()
        if source.suffix == ".gz":
            target.write_bytes(gzip.compress(mutate(gzip.decompress(content), chance)))
        else:
            target.write_bytes(mutate(content, chance))
        return target
    columns = chance.choice((1, 1, 2, 3, 30))
    names = [chance.choice((*WORDS, "a", "row", "log_density")) + str(i) for i in range(columns)]
    cells = (*NUMBERS, *WORDS, "NA", "1.5", "2", "3", "-4", "5e-300")
    plain = chance.random() < 0.6
    lines = [",".join(f'"{name}"' for name in names)]
    for _ in range(chance.choice((0, 1, 2, 3, 40))):
        values = [chance.gauss(0, 1) if plain else chance.choice(cells) for _ in names]
        lines.append(",".join(map(str, values)))
    target = folder / "odd.csv"
    target.write_bytes("\n".join(lines).encode() + chance.choice((b"\n", b"", b"\n\n")))
    return target


def run_command(chance: random.Random, originals: dict, folder: Path) -> str:
    from typer.testing import CliRunner

    from bnaf.cli.app import app

    table, model = odd_table(chance, originals, folder), chance.choice(originals["model"])
    steady = originals["folder"] / ("t.kinds.csv" if model.stem == "k" else "t.csv")
    if chance.random() < 0.5:
        model, table = odd_model(model, chance, folder), steady
    words = chance.choice(
        [
            ["fit", table, "--steps", "2", "--quiet", "--out", folder / "m.safetensors"],
            ["fit", steady, "--steps", "2", "--quiet", "--out", folder / "m.safetensors"],
            ["score", model, chance.choice((table, steady)), "--least", "3"],
            ["info", model],
            ["sample", model, "-n", "3", "--out", folder / "s.csv"],
            ["report", model, chance.choice((table, steady)), "--out", folder / "r.html"],
            ["plot", chance.choice(("density", "training")), model, "--out", folder / "p.png"],
            ["data"],
        ]
    )
    extras = ["--drop-missing", "--drop-constant", "--dequantise", "--json", "--force", "--nope"]
    extras += ["--delimiter=;", "--delimiter=é", "--decimal=ab", "--no-header", "--format=npy"]
    extras += ["--columns=a", "--given=b", "--given=b=1", "--seed=-1", "--test=2", "--valid=x"]
    words += chance.sample(extras, chance.choice((0, 0, 1, 2)))
    result = CliRunner().invoke(app, [str(word) for word in words], prog_name="bnaf")
    if result.exit_code not in (0, 1, 2):
        raise AssertionError(f"{words} ended with {result.exit_code}: {result.output[-200:]}")
    if "Traceback" in result.output:
        raise AssertionError(f"{words} told a traceback: {result.output[-200:]}")
    return "done" if result.exit_code == 0 else "refused"


RUNS = {
    "model": run_model,
    "table": run_table,
    "checkpoint": run_checkpoint,
    "command": run_command,
}

if __name__ == "__main__":
    main()

"""Mutates SPIR-V modules and reads what comes out: any bytes give a result or a ``SpirvError``.

Each case goes through the reader, ``reflect``, ``used`` and the audit of foreign modules. What
raises anything else, or takes longer than a second, is written to ``--keep`` and counted as a
crash; the last line of the output is the summary, and the exit code 1 if there was one.

    PYTHONPATH=codegen python scripts/fuzz_reader.py --cases 100000 --seed 1 --jobs 2
"""

from __future__ import annotations

import argparse
import hashlib
import random
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from shaderloom.errors import SpirvError
from shaderloom.foreign import examine
from shaderloom.foreign_audit import audit_foreign
from shaderloom.foreign_report import FORMATS
from shaderloom.reflect import reflect, used

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (ROOT / "tests" / "foreign", ROOT / "generated" / "spv")
LARGEST = 16384  # bytes of a seed: many small cases find more than few large ones
SLOW = 1.0  # seconds of the processor, since others may use it too

# Numbers at the edges of what a word may mean: ids, counts, lengths, offsets, magic.
EDGES = (
    *(0, 1, 2, 3, 0x7F, 0xFF, 0xFFFF, 0x10000, 0x3FFFFF, 0x400000, 0x7FFFFFFF),
    *(0x80000000, 0xFFFF0000, 0xFFFFFFFE, 0xFFFFFFFF, 0x07230203, 0x03022307),
)


def words(data: bytes) -> list[int]:
    """Return the little-endian words of a case, without a tail that is no word."""
    return list(struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4]))


def packed(numbers: Sequence[int]) -> bytes:
    """Return words as bytes."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def starts(numbers: Sequence[int]) -> list[int]:
    """Return where the instructions of a module start, as far as they can be followed."""
    found, position = [], 5
    while position < len(numbers):
        found.append(position)
        position += max(1, numbers[position] >> 16)
    return found


def flip_bits(data: bytes, chance: random.Random) -> bytes:
    """Flip one to eight bits."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def set_operands(data: bytes, chance: random.Random) -> bytes:
    """Put edges, or small numbers that may be ids, into operands of one to three instructions."""
    numbers = words(data)
    places = starts(numbers)
    for _ in range(chance.randint(1, 3)):
        place = chance.choice(places)
        operand = place + chance.randint(1, max(1, numbers[place] >> 16) + 1)
        if operand < len(numbers):
            numbers[operand] = chance.choice((chance.choice(EDGES), chance.randrange(64)))
    return packed(numbers)


def set_header(data: bytes, chance: random.Random) -> bytes:
    """Put an edge into a word of the header."""
    numbers = words(data)
    numbers[chance.randrange(5)] = chance.choice(EDGES)
    return packed(numbers)


def change_counts(data: bytes, chance: random.Random) -> bytes:
    """Give an instruction another length or another opcode."""
    numbers = words(data)
    place = chance.choice(starts(numbers))
    count, opcode = numbers[place] >> 16, numbers[place] & 0xFFFF
    if chance.random() < 0.5:
        count = chance.choice((0, 1, count + 1, max(0, count - 1), 0xFFFF))
    else:
        opcode = chance.choice((opcode ^ 1, chance.randrange(80), chance.randrange(0x10000)))
    numbers[place] = min(count, 0xFFFF) << 16 | opcode
    return packed(numbers)


def move_instructions(data: bytes, chance: random.Random) -> bytes:
    """Repeat, drop or move a run of instructions."""
    numbers = words(data)
    places = [*starts(numbers), len(numbers)]
    first = chance.randrange(len(places) - 1)
    last = min(len(places) - 1, first + chance.randint(1, 6))
    start, stop = places[first], places[last]
    run, rest = numbers[start:stop], numbers[:start] + numbers[stop:]
    if chance.random() < 0.3:
        return packed(rest)
    at = min(len(rest), chance.choice(places))
    whole = rest if chance.random() < 0.5 else numbers
    return packed([*whole[:at], *run * chance.choice((1, 1, 2, 50)), *whole[at:]])


def cut(data: bytes, chance: random.Random) -> bytes:
    """End the file early, between any two bytes."""
    return data[: chance.randrange(len(data))]


def swap_order(data: bytes, chance: random.Random) -> bytes:
    """Turn into the other byte order, and change one word of that."""
    numbers = words(data)
    numbers[chance.randrange(len(numbers))] = chance.choice(EDGES)
    return struct.pack(f">{len(numbers)}I", *numbers)


def noise(data: bytes, chance: random.Random) -> bytes:
    """Keep the header and fill the rest with noise, in the shape of instructions or without."""
    numbers = words(data)[:5]
    if chance.random() < 0.5:
        return packed(numbers) + chance.randbytes(chance.randrange(512))
    for _ in range(chance.randrange(40)):
        count = chance.randint(1, 8)
        numbers.append(count << 16 | chance.randrange(340))
        numbers += [chance.randrange(40) for _ in range(count - 1)]
    return packed(numbers)


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    # Those that most readers would notice at once are rare.
    *(set_operands,) * 8,
    *(move_instructions,) * 4,
    *(change_counts,) * 2,
    *(flip_bits, set_header, cut, swap_order, noise),
)


def mutate(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """Return a case: a seed with one to three mutations."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 2))):
        if len(data) >= 24:
            data = chance.choice(MUTATIONS)(data, chance)
    return data


def check(data: bytes) -> str:
    """Read a case in every way; return what the reader said, "" if it was read whole."""
    said = []
    for read in (reflect, used):
        try:
            read(data, "case")
        except SpirvError as error:
            said.append(error.diagnostics[0].message)
    module = examine(data, "case_a.spv")
    findings = audit_foreign([module, examine(data, "case_b.spv")])
    for show in FORMATS.values():
        show([module], findings).encode("ascii")
    return (said or [module.problem])[0]


def run(task: tuple[list[bytes], int, int, Path]) -> tuple[Counter[str], float]:
    """Run the cases of one process; count outcomes and return the slowest case's seconds."""
    seeds, seed, cases, keep = task
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for _ in range(cases):
        data = mutate(seeds, chance)
        started = time.process_time()
        try:
            reason = check(data)
            # "opcode 30 at word 5 runs past": numbers do not make another reason.
            kind = "".join(c for c in reason if not c.isdigit())[:40]
            outcomes[f"refused {kind}" if reason else "read"] += 1
        except Exception:
            outcomes["crash"] += 1
            save(keep, data, traceback.format_exc())
        seconds = time.process_time() - started
        slowest = max(slowest, seconds)
        if seconds > SLOW:
            outcomes["slow"] += 1
            save(keep, data, f"{seconds:.1f} s")
    return outcomes, slowest


def save(keep: Path, data: bytes, why: str) -> None:
    """Write a case beside what went wrong with it."""
    keep.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(data).hexdigest()[:12]
    (keep / f"{name}.spv").write_bytes(data)
    (keep / f"{name}.txt").write_text(why)


def main() -> int:
    """Run all cases and print the summary."""
    parser = argparse.ArgumentParser(description="Fuzz the SPIR-V reader.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path("build", "fuzz"))
    options = parser.parse_args()
    files = sorted(path for folder in SEEDS for path in folder.rglob("*.spv"))
    seeds = [data for path in files if 24 <= len(data := path.read_bytes()) <= LARGEST]
    per_job = -(-options.cases // options.jobs)
    started = time.perf_counter()
    first = 1000 * options.seed
    tasks = [(seeds, first + job, per_job, options.keep) for job in range(options.jobs)]
    with ProcessPoolExecutor(options.jobs) as pool:
        results = list(pool.map(run, tasks))
    outcomes = sum((counted for counted, _ in results), Counter[str]())
    refused = {kind: n for kind, n in outcomes.items() if kind.startswith("refused")}
    bad = outcomes["crash"] + outcomes["slow"]
    print(
        f"fuzz: {per_job * options.jobs:,} cases of {len(seeds)} seeds (seed {options.seed}): "
        f"{outcomes['read']:,} read, {sum(refused.values()):,} refused for {len(refused)} reasons, "
        f"{outcomes['crash']} crashes, {outcomes['slow']} slower than {SLOW:.0f} s; "
        f"slowest {1000 * max(slow for _, slow in results):.0f} ms, "
        f"{time.perf_counter() - started:.0f} s in all"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""How much of a model one step of training changes, to see whether sending only that would pay.

    python benchmarks/inference/changed_bytes.py VERSION_DIRECTORY NEXT_VERSION_DIRECTORY [...]

For each pair of neighbours: the share of values and of bytes that differ, and what the difference comes to when it is
sent as XOR, compressed, or as positions and values. The whole file is what is sent today. Models that are stored in
float32 are rounded to bfloat16 first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from webagent_inference import modeldir

SAMPLE = 16 << 20
POSITION_BYTES = 4


def values(directory: Path) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """The model in bfloat16, as 16-bit words, tensor by tensor in the order of their names."""
    tensors: dict[str, torch.Tensor] = {}
    for name in modeldir.weight_files(directory):
        tensors |= load_file(directory / name)
    words = [tensors[name].to(torch.bfloat16).flatten().view(torch.int16) for name in sorted(tensors)]
    return torch.cat(words).numpy().view(np.uint16)


def compare(old: Path, new: Path) -> dict[str, Any]:
    """One step."""
    before, after = values(old), values(new)
    differing = before != after
    xor = before ^ after
    # zlib looks at a part of the middle; the share that it leaves is much the same everywhere.
    middle = xor[len(xor) // 2 :][: SAMPLE // 2].tobytes()
    left = len(zlib.compress(middle, 1)) / len(middle)
    count = int(differing.sum())
    return {
        "from": old.name,
        "to": new.name,
        "bytes": after.nbytes,
        "values_changed": round(count / len(after), 4),
        "bytes_changed": round(float(np.count_nonzero(xor.view(np.uint8))) / after.nbytes, 4),
        "xor_compressed": round(left, 4),
        "positions_and_values": round(count * (POSITION_BYTES + 2) / after.nbytes, 4),
    }


def main() -> None:
    """Prints the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+")
    directories: list[Path] = parser.parse_args().directories
    pairs = itertools.pairwise(directories)
    print(json.dumps([compare(old, new) for old, new in pairs], indent=2))


if __name__ == "__main__":
    main()

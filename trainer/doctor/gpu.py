"""`make verify-gpu`: what training does on this machine's CUDA card, with random weights, in at
most ten minutes.

The model has the architecture of Qwen2.5-Coder-1.5B, is made on the spot and knows nothing, so no
hub is needed. Its rewards come from a small reward model that is as random. Each check runs `gradus
train` in a process of its own, so that its peak memory is its own and a crash ends no other check.
`--device cpu` runs the same code with a tiny model. Writes verify.json, and exits with 1
where a check failed or there is no card.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from trainer.doctor import describe_cuda_device
from trainer.pipeline.subprocesses import GRADUS, Child
from trainer.runs.folder import RunFolder, read_lines
from trainer.runs.provenance import collect_versions

EXIT_WORKS, EXIT_FAILS = 0, 1
BUDGET_S = 600.0
"""Seconds for all checks together. A check that would begin or end later has failed."""
SERVER_READY_S = 240.0
QWEN_1_5B: dict[str, Any] = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
}
"""Qwen2.5-Coder-1.5B's configuration, in transformers' names: 1.54 billion parameters."""
TINY = {
    **QWEN_1_5B,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "vocab_size": 512,
}
TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024}
STEPS, SAVE_AT, KILL_AT = 6, 2, 3
"""Optimizer steps of a check; the step of the checkpoint, and the one after which the run to resume
is killed."""
GROUP, PROMPTS = 8, 2
LORA: dict[str, Any] = {"lora": {"r": 16, "alpha": 32}}
COLOCATE: dict[str, Any] = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.3,
    "vllm_enable_sleep_mode": True,
    "vllm_max_model_length": 512,
}
"""vLLM in the trainer's process, asleep while the trainer updates."""

Figures = dict[str, Any]


class CheckFailed(Exception):
    """What a check found wrong."""


# ------------------------------------------------------------------------------------------ models


def make_models(folder: Path, device: str) -> None:
    """The policy in `folder/model` and the reward model in `folder/judge`; random, and the same
    each time."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
    )
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    on_card = device == "cuda"
    for name, sizes, kind in (
        ("model", QWEN_1_5B if on_card else TINY, AutoModelForCausalLM),
        ("judge", TINY, AutoModelForSequenceClassification),
    ):
        tokenizer = _build_tokenizer(sizes["vocab_size"])
        tokens = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        config = AutoConfig.for_model("qwen2", **sizes, **tokens, bos_token_id=None, num_labels=1)
        torch.manual_seed(1)
        dtype = torch.bfloat16 if on_card and name == "model" else torch.float32
        kind.from_config(config, dtype=dtype).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def _build_tokenizer(size: int) -> Any:
    """Return a tokenizer in which each of `size` tokens has a text, so that random completions
    differ for the judge."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>", "<|im_end|>"]
    names += [f"Ġ{number}" for number in range(size - len(names))]
    bpe = Tokenizer(
        models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=[])
    )
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )


# ------------------------------------------------------------------------------------------ checks


def check_resume(folder: Path, device: str) -> Figures:
    """Return a run that was killed by SIGKILL after a checkpoint, resumed."""
    config = _write_config(folder, device, "resume", LORA)
    run = RunFolder(folder / "resume")
    child = Child([*GRADUS, "train", str(config)], folder / "resume.killed.log")
    try:
        while not run.metrics.exists() or len(read_lines(run.metrics)) < KILL_AT:
            if child.process.poll() is not None:
                raise CheckFailed(f"the run to kill ended by itself\n{child.tail(5)}")
            time.sleep(0.02)  # before the run has ended
    finally:
        child.kill()
    figures = _run_training(folder, device, "resume", LORA)
    if "checkpoint-" not in run.log.read_text(encoding="utf-8"):
        raise CheckFailed("the run did not resume from its checkpoint")
    return figures


def check_server(folder: Path, device: str) -> Figures:
    """Return a vLLM server on the same card; adapters are sent to it, and the trainer proves each
    transfer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*GRADUS, "vllm", str(folder / "model"), "--port", str(port), "--device", device]
    sizes = ["--max-model-len", "512", "--lora-rank", "16", "--gpu-memory-utilization", "0.3"]
    generation = {
        "backend": "vllm",
        "url": f"http://127.0.0.1:{port}",
        "verify_sync": "always",
        "restart_wait_s": SERVER_READY_S,
    }
    server = Child([*command, *sizes], folder / "server.vllm.log")
    try:
        figures = _run_training(folder, device, "server", {**LORA, "generation": generation})
    finally:
        server.end()
    last = read_lines(folder / "server" / "metrics.jsonl")[-1]
    return figures | {name: last[name] for name in last if name.startswith("generation/")}


CHECKS: Mapping[str, Callable[[Path, str], Figures]] = {
    "lora": lambda folder, device: _run_training(folder, device, "lora", LORA),
    "resume": check_resume,
    "full": lambda folder, device: _run_training(folder, device, "full", {}),
    "colocate": lambda folder, device: _run_training(
        folder, device, "colocate", {**LORA, "grpo": COLOCATE}
    ),
    "server": check_server,
}
"""In this order: what needs no vLLM comes first, so that a short budget spends itself on it."""
NEEDS_VLLM = {"colocate", "server"}


# -------------------------------------------------------------------------------------------- runs


def _write_config(folder: Path, device: str, name: str, changes: Mapping[str, Any]) -> Path:
    """Return the config of a GRPO run of `STEPS` steps in `folder/name`, without a grader: the
    judge alone gives rewards."""
    prompts = [json.dumps({"id": f"p{n}", "prompt": f"task {n}: "}) for n in range(8)]
    (folder / "prompts.jsonl").write_text("\n".join(prompts), encoding="utf-8")
    settings = {
        "model": {"name": str(folder / "model"), "device": device},
        "data": {"dataset": str(folder / "prompts.jsonl")},
        "reward": {"models": [{"path": str(folder / "judge")}]},
        "output_dir": str(folder / name),
        **changes,
        "grpo": {
            "max_steps": STEPS,
            "per_device_train_batch_size": GROUP * PROMPTS,
            "num_generations": GROUP,
            "max_completion_length": 256 if device == "cuda" else 16,
            "learning_rate": 1.0e-4 if "lora" in changes else 1.0e-6,
            "lr_scheduler_type": "constant",
            "save_steps": SAVE_AT,
            "save_only_model": name == "full",
            **changes.get("grpo", {}),
        },
    }
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return config


def _run_training(folder: Path, device: str, name: str, changes: Mapping[str, Any]) -> Figures:
    """Return figures of a run in this process, resumed where its folder has a checkpoint. Raises
    CheckFailed."""
    import torch

    from trainer.train import main as train

    status = train(_write_config(folder, device, name, changes))
    if status != 0:
        raise CheckFailed(
            f"gradus train ended with status {status}; its log is {folder / name / 'training.log'}"
        )
    lines = []
    for line in read_lines(folder / name / "metrics.jsonl"):
        if "learning_rate" in line:
            lines.append(line)
    if len(lines) != STEPS:
        raise CheckFailed(f"{len(lines)} steps were logged in place of {STEPS}")
    if not any(line["grad_norm"] > 0 for line in lines):
        raise CheckFailed("no step had a gradient")
    later = lines[1:]  # the first one compiles kernels and fills caches
    seconds = {}
    for part in ("generate", "grade", "update"):
        seconds[part] = fmean(line[f"time/{part}_s"] for line in later)
    tokens = GROUP * PROMPTS * fmean(line["completions/mean_length"] for line in later)
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "steps": len(lines),
        **{f"{part}_s": value for part, value in seconds.items()},
        "generated_tokens_per_s": tokens / seconds["generate"],
        "step_tokens_per_s": tokens / sum(seconds.values()),
        "peak_memory_gib": peak / 2**30,
        "grad_norm": lines[-1]["grad_norm"],
    }


# ------------------------------------------------------------------------------------------ report


def main(device: str, out: Path, budget_s: float, names: list[str]) -> int:
    """Run the checks and write verify.json; the exit status."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        print(
            f"MISS no CUDA card: torch {torch.__version__} sees none; `gradus doctor` says what"
            " there is",
            flush=True,
        )
        return EXIT_FAILS
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        print(f"MISS {out}: is not empty; name another folder with --out")
        return EXIT_FAILS
    give_up_at = time.monotonic() + budget_s
    make_models(out, device)
    machine: Figures = {"platform": platform.platform(), "versions": collect_versions()}
    if device == "cuda":
        machine |= {**describe_cuda_device(torch, 0), "cuda": torch.version.cuda}
    checks = {}
    for name in names:
        checks[name] = _run_check(name, out, device, give_up_at - time.monotonic())
        print(f"{checks[name]['status']:8} {name}: {checks[name]['text']}", flush=True)
    file = out / "verify.json"
    file.write_text(json.dumps({"machine": machine, "checks": checks}, indent=1) + "\n")
    print(file)
    statuses = [check["status"] for check in checks.values()]
    return EXIT_FAILS if "failed" in statuses else EXIT_WORKS


def _run_check(name: str, out: Path, device: str, left_s: float) -> Figures:
    """Return what a check found: its status (ok, failed, skipped), a text, its figures."""
    if name in NEEDS_VLLM and importlib.util.find_spec("vllm") is None:
        return {"status": "skipped", "text": "vLLM is not installed: run `make gpu`"}
    if name == "colocate" and device != "cuda":
        return {"status": "skipped", "text": "vLLM sleeps on CUDA alone"}
    command = [sys.executable, "-m", "trainer.doctor.gpu", "--check", name]
    command += ["--device", device, "--out", str(out)]
    child = Child(command, out / f"{name}.log", environment={"OMP_NUM_THREADS": "1", **os.environ})
    try:
        child.process.wait(max(left_s, 0))
    except subprocess.TimeoutExpired:
        text = f"did not end in the {left_s:.0f} s that were left; --budget gives more"
        return {"status": "failed", "text": f"{text}\n{child.tail(5)}"}
    finally:
        child.end()
    wrote = out / f"{name}.json"
    if not wrote.exists():
        text = f"ended with status {child.process.returncode}\n{child.tail(5)}"
        return {"status": "failed", "text": text}
    outcome: Figures = json.loads(wrote.read_text(encoding="utf-8"))
    return outcome


def check(name: str, out: Path, device: str) -> None:
    """One check in this process; its outcome goes to `out/NAME.json`."""
    try:
        figures = {key: round(value, 6) for key, value in CHECKS[name](out, device).items()}
        text = ", ".join(f"{key} {value:g}" for key, value in figures.items())
        outcome: Figures = {"status": "ok", "text": text, "figures": figures}
    except CheckFailed as failure:
        outcome = {"status": "failed", "text": str(failure)}
    (out / f"{name}.json").write_text(json.dumps(outcome) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m trainer.doctor.gpu", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu runs a tiny model"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/verify-gpu"))
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS")
    parser.add_argument("--only", nargs="+", choices=tuple(CHECKS), default=list(CHECKS))
    parser.add_argument("--check", choices=tuple(CHECKS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.out.resolve()
    if arguments.check is not None:
        check(arguments.check, folder, arguments.device)
        sys.exit()
    sys.exit(main(arguments.device, folder, arguments.budget, arguments.only))

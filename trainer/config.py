"""Everything that a training run can be told, as one tree: `TrainConfig`. Loads no torch and starts nothing.

A run is a YAML file plus overrides from the command line. Settings of TRL keep TRL's own names, under `grpo:` and
`warm_start.sft:` in the file and as bare `--learning_rate 1e-6` on the command line; ours are dotted,
`--reward.deadline_s 30`. Unknown keys are refused everywhere, with the nearest known one.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gradus.contract import MAX_DEADLINE_S, GraderName, RubricName
from gradus.errors import Misuse
from trainer.strict_yaml import read_mapping, read_scalar

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


# ------------------------------------------------------------------------------------------------------- sections


class FreshModel(_Section):
    """Sizes of a model made on the spot (`model.name: fresh:qwen3`); the defaults have 0.6 million parameters."""

    hidden_size: Count = 128
    intermediate_size: Count = 320
    layers: Count = 3
    heads: Count = 4
    kv_heads: Count = 2
    head_dim: Count = 32
    vocab_size: Annotated[int, Field(ge=260)] = 384
    """Of the byte-level BPE tokenizer that is trained on the warm start's texts."""
    max_length: Count = 256


class ModelConfig(_Section):
    name: str
    """A folder, a model's name on the hub, or `fresh:qwen3`: a tiny untrained model, made with its tokenizer."""
    revision: str | None = None
    trust_remote_code: bool = False
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the weights. auto: bfloat16 on CUDA with LoRA where the card can, else float32."""
    attn_implementation: str | None = None
    load_in_4bit: bool = False
    """Frozen weights in 4 bits (NF4, by bitsandbytes), with LoRA adapters in float32 on them: QLoRA."""
    load_in_8bit: bool = False
    """The same in 8 bits."""
    cpu_threads: Count | None = None
    """Threads that torch may use on the CPU; 1 is fastest for tiny models on a busy machine."""
    fresh: FreshModel = FreshModel()

    @property
    def is_fresh(self) -> bool:
        return self.name.startswith("fresh:")

    @property
    def is_quantized(self) -> bool:
        return self.load_in_4bit or self.load_in_8bit

    @model_validator(mode="after")
    def _one_number_of_bits(self) -> ModelConfig:
        if self.load_in_4bit and self.load_in_8bit:
            raise ValueError("give either load_in_4bit or load_in_8bit, not both")
        return self


class LoraSettings(_Section):
    r: Count = 16
    alpha: Count = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    bias: Literal["none", "all", "lora_only"] = "none"
    targets: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Ends of names of modules, such as `q_proj`, and of parameters, such as `mlp.experts.gate_up_proj`: the experts of
    a mixture-of-experts model are one parameter, which a module's name does not reach. A name that fits nothing is
    refused."""
    allow_frozen_experts: bool = False
    """Train a mixture-of-experts model although `targets` leave its experts as they are."""
    modules_to_save: list[str] = []
    """Modules trained in full beside the adapters, such as `lm_head` and `embed_tokens`."""


class DataConfig(_Section):
    dataset: str
    """A .jsonl, .json or .csv file, a dataset's name on the hub, or `demo:ocaml`, `demo:rust` or `demo:story`."""
    split: str = "train"
    """Of a dataset on the hub."""
    eval_dataset: str | None = None
    """Tasks to measure on and never to train on; with it, `held_out` must be 0."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of `dataset` that is kept out of training; two rows with the same tests never part."""
    columns: dict[str, str] = {}
    """Our column name: theirs, such as `prompt: problem`."""
    ignore_columns: list[str] = []
    """Columns to drop without a word; `*` drops every one that we do not know."""
    max_prompt_tokens: Count | None = None
    """A task whose rendered prompt is longer is left out, with a message; cutting it would make it unsolvable."""
    limit: Count | None = None
    """Use only the first so many tasks."""

    @model_validator(mode="after")
    def _one_way_to_hold_out(self) -> DataConfig:
        if self.eval_dataset is not None and self.held_out > 0:
            raise ValueError("give either eval_dataset or held_out, not both")
        return self


class FewShot(_Section):
    prompt: str
    completion: str


class PromptConfig(_Section):
    style: Literal["plain", "chat"] = "plain"
    """plain: one text. chat: messages, through the tokenizer's chat template."""
    template: str = "{prompt}"
    """`{prompt}` is the task's text; `{signature}`, `{module}`, `{crate}`, `{sprint_goal}` and `{team_context}` are the
    task's, where it has them. For stories `{sprint_goal}` may stand in place of `{prompt}`."""
    thinks: bool = False
    """The tokenizer's chat template ends the prompt with `<think>`. A plain template that ends so need not say it."""
    system: str | None = None
    examples: list[FewShot] = []
    """Shown before the task: as text when plain, as earlier turns when chat."""

    @model_validator(mode="after")
    def _fits_together(self) -> PromptConfig:
        if "{prompt}" not in self.template and "{sprint_goal}" not in self.template:
            raise ValueError("template has no {prompt}, so the model would never see the task")
        if self.style == "plain" and self.system is not None:
            raise ValueError("system needs style: chat; write it into template for plain prompts")
        if self.style == "plain" and self.thinks:
            raise ValueError("thinks needs style: chat; end a plain template with <think>")
        return self

    @property
    def opening(self) -> str:
        """What the prompt has already written of each completion: an opening tag of thinking, or nothing."""
        plain = self.style == "plain" and self.template.rstrip().endswith("<think>")
        return "<think>\n" if plain or self.thinks else ""


class FaultBudget(_Section):
    """How much of the grading may fail before the run stops; a faulted sample never counts as a zero."""

    share: Share = 0.25
    """Of a step's samples."""
    steps: Count = 3
    """So many steps in a row above `share` stop the run; one step without a single verdict stops it at once."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class RewardConfig(_Section):
    grader: GraderName
    urls: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)] = ["http://127.0.0.1:8000"]
    rubric: RubricName | None = None
    """None: the grader's default."""
    deadline_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)] = 60.0
    """For all samples of one step together."""
    early: bool = True
    """Send completions to the graders while others are still being written: each as it ends, with vLLM each group."""
    ready_timeout_s: Annotated[float, Field(ge=0)] = 30.0
    """How long to wait for the grader before anything is trained; a service may still be starting."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 64
    """Submissions in one request."""
    api_key_env: str = "GRADUS_API_KEY"
    """The environment variable that holds the key, if the service wants one."""
    fault_budget: FaultBudget = FaultBudget()


class WarmStart(_Section):
    """Supervised training on worked answers before GRPO, loss on the completion only."""

    dataset: str
    """Like `data.dataset`, with columns `prompt` and `completion` (or `solution`)."""
    split: str = "train"
    columns: dict[str, str] = {}
    ignore_columns: list[str] = []
    limit: Count | None = None
    sft: dict[str, Any] = {}
    """TRL's SFTConfig, by its own names."""


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("write it as http://host:port")
    return value


class GenerationConfig(_Section):
    """Who writes the completions that are trained on. Sampling itself is `grpo`'s: temperature, top_p ..."""

    backend: Literal["in_process", "vllm"] = "in_process"
    """in_process: the model being trained, through transformers. vllm: a server, `gradus vllm MODEL`."""
    url: Annotated[str, AfterValidator(_http_url)] = "http://127.0.0.1:8001"
    sync: Literal["auto", "file", "http", "lora", "nccl"] = "auto"
    """How the server gets new weights. file: it reads them from `folder`. http: it fetches them from
    `serve_weights_at`. lora: it loads each adapter from `folder`. nccl: TRL's own way, for CUDA, with vllm installed
    beside the trainer. auto: lora for LoRA without modules_to_save where the server can, else file."""
    folder: Path | None = None
    """Where weights are written, for file and lora under the same path for the server. None: in the run folder."""
    serve_weights_at: str = "127.0.0.1:0"
    """host:port that the server can reach, for `sync: http`; port 0 is any free one."""
    verify_sync: Literal["first", "always", "never"] = "first"
    """After which syncs trainer and server are asked for the probabilities of the same tokens. With ZeRO-3 or FSDP it
    has to be never."""
    max_logprob_difference: Annotated[float, Field(gt=0)] = 0.05
    """The run stops when they differ by more: 1e-4 is usual in float32, some hundredths in bfloat16."""
    sync_deadline_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)] = 300.0
    request_timeout_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)] = 600.0
    """For all completions of one prompt."""
    restart_wait_s: Annotated[float, Field(ge=0, le=MAX_DEADLINE_S)] = 300.0
    """How long a server that died may take to come back; it gets the weights of the step again."""
    tries: Annotated[int, Field(ge=1, le=100)] = 3
    allow_untested_versions: bool = False
    """Go on with a vLLM that was never tried with this TRL."""
    api_key_env: str = "GRADUS_VLLM_API_KEY"
    """The environment variable that holds the server's key, if it wants one."""


class EvaluationConfig(_Section):
    """How the held-out tasks are measured during a run, if there are any."""

    every_steps: Annotated[int, Field(ge=0)] = 0
    """0: only before the first step and after the last."""
    samples: Annotated[int, Field(ge=0)] = 4
    """Completions per task at `temperature`; 0 leaves them out."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    greedy: bool = True
    """Also one completion per task without sampling."""
    limit: Count | None = None
    batch_size: Count = 256
    """Completions generated at once."""


class LoggingConfig(_Section):
    progress: bool = True
    completions: bool = True
    """Write completions.jsonl."""


class TrainConfig(_Section):
    """One training run."""

    model: ModelConfig
    lora: LoraSettings | None = None
    """None: all weights are trained."""
    data: DataConfig
    prompt: PromptConfig = PromptConfig()
    reward: RewardConfig
    warm_start: WarmStart | None = None
    grpo: dict[str, Any] = {}
    """TRL's GRPOConfig, by its own names."""
    generation: GenerationConfig = GenerationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    logging: LoggingConfig = LoggingConfig()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 42
    output_dir: Path
    """The run folder. Starting again with the same one goes on from its last checkpoint."""

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_model_name(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("model"), str):
            return {**value, "model": {"name": value["model"]}}
        return value

    @model_validator(mode="after")
    def _shows_the_task(self) -> TrainConfig:
        if "{prompt}" not in self.prompt.template and self.reward.grader is not GraderName.STORY:
            raise ValueError("prompt.template has no {prompt}; {sprint_goal} alone is for grader: story")
        return self

    @model_validator(mode="after")
    def _trains_what_can_be_trained(self) -> TrainConfig:
        if not self.model.is_quantized:
            return self
        bits = "model.load_in_4bit" if self.model.load_in_4bit else "model.load_in_8bit"
        if self.lora is None:
            raise ValueError(f"{bits} needs lora: quantized weights cannot be trained themselves")
        by_adapters = self.generation.backend == "vllm" and self.generation.sync == "lora"
        if (self.generation.backend == "vllm" or self.grpo.get("use_vllm")) and not by_adapters:
            # All other ways hand over whole weights, and quantized ones are packed bytes.
            raise ValueError(f"{bits} with vLLM needs generation: {{backend: vllm, sync: lora}}")
        return self


# -------------------------------------------------------------------------------------------------------- loading

OWN_NAMES = {
    "output_dir": "set `output_dir` at the top level",
    "seed": "set `seed` at the top level",
    "resume_from_checkpoint": "use `--resume`",
    "use_cpu": "set `model.device: cpu`",
    "trust_remote_code": "set `model.trust_remote_code`",
    "model_init_kwargs": "set `model.dtype`, `model.revision`, `model.attn_implementation` or `model.load_in_4bit`",
    "reward_weights": "there is one reward; weigh its parts in a rubric",
    "disable_tqdm": "set `logging.progress`",
    "eval_strategy": "set `evaluation.every_steps`",
    "remove_unused_columns": "leave it out: the reward needs the columns",
}
"""TRL options that this trainer sets itself, and where a person sets them."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """The config in a YAML file with command-line overrides on top, checked down to TRL's option names and types.

    Raises Misuse with one line per mistake, naming the file or the option and the key.
    """
    path = Path(path)
    tree = read_mapping(path)
    given = parse_overrides(overrides)
    if isinstance(tree.get("model"), str):
        tree["model"] = {"name": tree["model"]}
    mistakes = [*_unknown_keys(tree, str(path)), *_unknown_keys(given, "command line")]
    if mistakes:
        raise Misuse("\n".join(mistakes))
    config = _validated(_merged(tree, given), given, path)
    return _with_paths_beside(_with_checked_trl_options(config, given, path), path)


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """`--learning_rate 1e-6 --reward.deadline_s=30 --use_vllm` as a tree; a flag without a value means true."""
    tree: dict[str, Any] = {}
    for flag, text in _pairs(arguments):
        path = _path_of(flag)
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                raise Misuse(f"command line: --{flag}: {part} was already given a plain value")
        if path[-1] in at:
            raise Misuse(f"command line: --{flag} is given twice")
        at[path[-1]] = read_scalar(text, f"command line: --{flag}")
    return tree


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    waiting = list(arguments)
    while waiting:
        flag = waiting.pop(0)
        if not flag.startswith("--") or flag == "--":
            raise Misuse(f"command line: {flag!r} is not an option; write --name value or --section.name value")
        name, equals, text = flag[2:].partition("=")
        if not equals:
            text = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        yield name, text


def _path_of(flag: str) -> list[str]:
    path = flag.replace("-", "_").split(".")
    if len(path) == 1 and path[0] not in TrainConfig.model_fields:
        return ["grpo", path[0]]  # a bare name is TRL's, as its own command line has it
    if path == ["model"]:
        return ["model", "name"]
    return path


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of an error message about an unknown name."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _unknown_keys(
    tree: Mapping[str, Any], where: str, section: type[BaseModel] = TrainConfig, path: tuple[str, ...] = ()
) -> Iterator[str]:
    for key, value in tree.items():
        here = ".".join((*path, str(key)))
        field = section.model_fields.get(str(key))
        if field is None:
            hint = nearest(str(key), list(section.model_fields)) or f"; known: {', '.join(section.model_fields)}"
            yield f"{where}: {here}: unknown key{hint}"
        elif isinstance(value, Mapping) and (inner := _section_in(field.annotation)) is not None:
            yield from _unknown_keys(value, where, inner, (*path, str(key)))


def _section_in(annotation: Any) -> type[_Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, _Section):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for arg in get_args(annotation) if (found := _section_in(arg))), None)
    return None


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _validated(tree: dict[str, Any], given: Mapping[str, Any], path: Path) -> TrainConfig:
    try:
        return TrainConfig.model_validate(tree)
    except ValidationError as error:
        lines = [
            ": ".join(
                [_source(item["loc"], given, path), *_key(item["loc"]), item["msg"].removeprefix("Value error, ")]
            )
            for item in error.errors(include_url=False, include_context=False)
        ]
        raise Misuse("\n".join(dict.fromkeys(lines))) from None


def _key(loc: Sequence[int | str]) -> list[str]:
    """The key that a mistake is about; none when it is about several."""
    return [".".join(map(str, loc))] if loc else []


def _source(loc: Sequence[int | str], given: Mapping[str, Any], path: Path) -> str:
    at: Any = given
    for part in loc:
        if not isinstance(at, Mapping) or part not in at:
            return str(path)
        at = at[part]
    return "command line" if loc else str(path)


def _with_checked_trl_options(config: TrainConfig, given: Mapping[str, Any], path: Path) -> TrainConfig:
    from trainer.trl_options import checked_options  # imports TRL, which takes seconds

    mistakes: list[str] = []
    grpo = checked_options("GRPOConfig", config.grpo, ("grpo",), mistakes)
    updated: dict[str, Any] = {"grpo": grpo}
    if config.warm_start is not None:
        sft = checked_options("SFTConfig", config.warm_start.sft, ("warm_start", "sft"), mistakes)
        updated["warm_start"] = config.warm_start.model_copy(update={"sft": sft})
    if mistakes:
        raise Misuse("\n".join(f"{_source(line.split(':')[0].split('.'), given, path)}: {line}" for line in mistakes))
    return config.model_copy(update=updated)


def _with_paths_beside(config: TrainConfig, path: Path) -> TrainConfig:
    """Files named in the config are looked for from the working directory, then from the config's own folder."""
    data = config.data.model_copy(
        update={
            "dataset": _beside(config.data.dataset, path),
            "eval_dataset": config.data.eval_dataset and _beside(config.data.eval_dataset, path),
        }
    )
    updated: dict[str, Any] = {"data": data}
    updated["model"] = config.model.model_copy(update={"name": _beside(config.model.name, path)})
    if config.warm_start is not None:
        dataset = _beside(config.warm_start.dataset, path)
        updated["warm_start"] = config.warm_start.model_copy(update={"dataset": dataset})
    return config.model_copy(update=updated)


def _beside(name: str, path: Path) -> str:
    beside = path.parent / name
    return str(beside) if not Path(name).exists() and beside.exists() else name

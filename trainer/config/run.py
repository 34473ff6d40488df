"""Everything that a training run can be told, as one tree: `TrainConfig`. Loads no torch and starts
nothing.

A run is a YAML file plus overrides from the command line. Settings of TRL keep TRL's own names,
under `grpo:` and `warm_start.sft:` in the file and as bare `--learning_rate 1e-6` on the command
line; ours are dotted, `--reward.deadline_s 30`. Unknown keys are refused everywhere, with the
nearest known one. The trees of the other stages are `trainer.config.stages`'; they are made of the
same sections and read by the same code.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gradus.contract import MAX_DEADLINE_S, GraderName, RubricName
from gradus.errors import Misuse
from gradus.reward_model.model_files import get_model_label

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class FreshModel(Section):
    """Sizes of a model made on the spot (`model.name: fresh:qwen3`); the defaults have 0.6 million
    parameters."""

    hidden_size: Count = 128
    intermediate_size: Count = 320
    layers: Count = 3
    heads: Count = 4
    kv_heads: Count = 2
    head_dim: Count = 32
    vocab_size: Annotated[int, Field(ge=260)] = 384
    """Size of the byte-level BPE tokenizer, which is trained on the warm start's texts."""
    max_length: Count = 256


class ModelConfig(Section):
    name: str
    """A folder, a model's name on the hub, or `fresh:qwen3`: a tiny untrained model, made with its
    tokenizer."""
    revision: str | None = None
    trust_remote_code: bool = False
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights. auto: bfloat16 on CUDA with LoRA if the card supports it, else
    float32."""
    attn_implementation: str | None = None
    load_in_4bit: bool = False
    """Frozen weights in 4 bits (NF4, by bitsandbytes), with LoRA adapters in float32 on them:
    QLoRA."""
    cpu_threads: Count | None = None
    """Threads that torch may use on the CPU; 1 is fastest for tiny models on a busy machine."""
    fresh: FreshModel = FreshModel()

    @property
    def is_fresh(self) -> bool:
        return self.name.startswith("fresh:")


def wrap_model_name(value: Any) -> Any:
    """Return the settings of a model that is given by its name alone."""
    return {"name": value} if isinstance(value, str) else value


class LoraSettings(Section):
    r: Count = 16
    alpha: Count = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    bias: Literal["none", "all", "lora_only"] = "none"
    first_layer: Annotated[int, Field(ge=0)] = 0
    """Layers below this one get no adapters. They are neither kept in memory for the backward pass
    nor computed in it, which halves its cost for the upper half of a model."""
    targets: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Ends of names of modules, such as `q_proj`, and of parameters, such as
    `mlp.experts.gate_up_proj`: the experts of a mixture-of-experts model are one parameter, which a
    module's name does not reach. A name that fits nothing is refused."""
    allow_frozen_experts: bool = False
    """Train a mixture-of-experts model although `targets` leave its experts as they are."""
    modules_to_save: list[str] = []
    """Modules trained in full beside the adapters, such as `lm_head` and `embed_tokens`."""


class RowSource(Section):
    """Rows of a file or of the hub, by whatever names their columns have."""

    dataset: str
    """A .jsonl, .json or .csv file, a dataset's name on the hub, or `demo:ocaml`, `demo:rust` or
    `demo:story`."""
    split: str = "train"
    """Split of a dataset on the hub."""
    columns: dict[str, str] = {}
    """Our column name: theirs, such as `prompt: problem`."""
    ignore_columns: list[str] = []
    """Columns to drop without a word; `*` drops every one that we do not know."""
    limit: Count | None = None
    """Use only the first so many rows."""


class SplitSource(RowSource):
    """Rows to train on, and others to measure on."""

    eval_dataset: str | None = None
    """Rows to measure on and never to train on; with it, `held_out` must be 0."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of `dataset` that is kept out of training; what belongs together (tasks with the same
    tests, rows with the same prompt) never parts."""

    @model_validator(mode="after")
    def _check_held_out(self) -> SplitSource:
        if self.eval_dataset is not None and self.held_out > 0:
            raise ValueError("give either eval_dataset or held_out, not both")
        return self

    unusable: Literal["refuse", "skip"] = "refuse"
    """What happens to a row that cannot be used, or that occurred before. skip: it is left out and
    counted, for files that are not yours."""


class DataConfig(SplitSource):
    """Tasks."""

    max_prompt_tokens: Count | None = None
    """A task whose rendered prompt is longer is left out, with a message; cutting it would make it
    unsolvable."""
    order: Literal["shuffled", "length", "difficulty"] = "shuffled"
    """Order of the tasks in every pass over them, ascending. length: by characters of the prompt.
    difficulty: by the column of that name, which holds numbers, or `easy`, `medium`, `hard`."""


class PromptConfig(Section):
    style: Literal["plain", "chat"] = "plain"
    """plain: one text. chat: messages, through the tokenizer's chat template."""
    template: str = "{prompt}"
    """`{prompt}` is the task's text; `{signature}`, `{module}`, `{crate}`, `{sprint_goal}` and
    `{team_context}` are the task's, where it has them. For stories `{sprint_goal}` may stand in
    place of `{prompt}`."""
    thinks: bool = False
    """The tokenizer's chat template ends the prompt with `<think>`. A plain template that ends so
    need not say it."""
    system: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    """Further arguments of the chat template, such as `enable_thinking: false`; in training and in
    measurements."""

    @model_validator(mode="after")
    def _check_style(self) -> PromptConfig:
        if "{prompt}" not in self.template and "{sprint_goal}" not in self.template:
            raise ValueError("template has no {prompt}, so the model would never see the task")
        if self.style == "plain" and self.system is not None:
            raise ValueError("system needs style: chat; write it into template for plain prompts")
        if self.style == "plain" and self.chat_template_kwargs:
            raise ValueError("chat_template_kwargs needs style: chat")
        if self.style == "plain" and self.thinks:
            raise ValueError("thinks needs style: chat; end a plain template with <think>")
        return self

    @property
    def opening(self) -> str:
        """What the prompt has already written of each completion: an opening tag of thinking, or
        nothing."""
        plain = self.style == "plain" and self.template.rstrip().endswith("<think>")
        return "<think>\n" if plain or self.thinks else ""


class FaultBudget(Section):
    """How much of the grading may fail before the run stops; a faulted sample never counts as a
    zero."""

    share: Share = 0.25
    """Share of a step's samples that may have faults."""
    steps: Count = 3
    """So many steps in a row above `share` stop the run; one step without a single verdict stops it
    at once."""


def ensure_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class RewardModelConfig(Section):
    """A reward model in the trainer's process: the grader `preference`, whose raw score is the
    reward."""

    path: str
    """The final folder of a run of `stage: reward`, or any such model with one score; without its
    trained head it is refused."""
    weight: float = 1.0
    name: str | None = None
    """In metrics, `rewards/<name>/mean`. None: the last part of the path, or of its parent for
    `final`."""
    batch_size: Count = 16
    """Completions scored at once."""

    @property
    def label(self) -> str:
        return self.name or get_model_label(self.path)


class RewardFunctionConfig(Section):
    """A Python function in the trainer's process, in TRL's form, whose rewards are added."""

    path: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    """`package.module:function`, importable or in the working directory. It is called with lists by
    name, `prompts`, `completions` (texts), `completion_ids`, `prompt_id`, `kind`, `solution`,
    `task`, and with `trainer_state`, `log_metric` and `log_extra` of TRL, and returns a list of
    numbers; None: this completion gets no reward from any source."""
    weight: float = 1.0
    name: str | None = None
    """In metrics, `rewards/<name>/mean`. None: the function's name."""
    arguments: dict[str, Any] = {}
    """Further arguments, by name."""

    @property
    def label(self) -> str:
        return self.name or self.path.rpartition(":")[2]


def wrap_function_path(value: Any) -> Any:
    """Return the settings of a reward function that is given by its path alone."""
    return {"path": value} if isinstance(value, str) else value


class RewardConfig(Section):
    """Who judges the completions. The key of a service that wants one is in the variable
    GRADUS_API_KEY."""

    grader: GraderName | None = None
    """Judges the tasks. None: reward models or functions alone."""
    weight: float = 1.0
    """Weight of the grader's reward beside others."""
    models: list[RewardModelConfig] = []
    """Reward models in this process. A completion that one judge could not judge gets no reward
    from any."""
    functions: list[Annotated[RewardFunctionConfig, BeforeValidator(wrap_function_path)]] = []
    """Reward functions in this process, such as
    `trainer.rewards.functions:penalize_overlong`."""
    urls: Annotated[list[str], BeforeValidator(ensure_list), Field(min_length=1)] = [
        "http://127.0.0.1:8000"
    ]
    rubric: RubricName | None = None
    """None: the grader's default."""
    deadline_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)] = 60.0
    """Seconds for all samples of one step together."""
    early: bool = True
    """Send completions to the graders while others are still being written: each as it ends, with
    vLLM each group."""
    ready_timeout_s: Annotated[float, Field(ge=0)] = 30.0
    """How long to wait for the grader before anything is trained; a service may still be
    starting."""
    fault_budget: FaultBudget = FaultBudget()

    @property
    def judge(self) -> GraderName:
        """The grader, where there has to be one. Raises Misuse where there is none."""
        if self.grader is None:
            raise Misuse("reward.grader: is needed for this, and reward models alone were given")
        return self.grader

    @model_validator(mode="after")
    def _check_sources(self) -> RewardConfig:
        if self.grader is None and not (self.models or self.functions):
            raise ValueError("give a grader, reward models or reward functions")
        if self.grader == "preference":
            raise ValueError("a reward model judges no tasks: give models in place of grader")
        labels = [TRLS_NAME_OF_THE_GRADER]
        labels += [model.label for model in self.models]
        labels += [function.label for function in self.functions]
        if twins := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"two sources of reward are called {twins[0]}; give each a name")
        return self


TRLS_NAME_OF_THE_GRADER = "gradus"
"""In metrics, `rewards/gradus/mean`."""


class WarmStart(RowSource):
    """Supervised training on worked answers before GRPO, loss on the completion only; its rows have
    columns `prompt` and `completion` (or `solution`)."""

    sft: dict[str, Any] = {}
    """TRL's SFTConfig, by its own names."""


def _validate_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("write it as http://host:port")
    return value


class GenerationConfig(Section):
    """Who writes the completions that are trained on. Sampling itself is `grpo`'s: temperature,
    top_p ... The key of a server that wants one is in the variable GRADUS_VLLM_API_KEY."""

    backend: Literal["in_process", "vllm"] = "in_process"
    """in_process: the model being trained, through transformers. vllm: a server, `gradus vllm
    MODEL`."""
    url: Annotated[str, AfterValidator(_validate_url)] = "http://127.0.0.1:8001"
    sync: Literal["auto", "file", "lora", "nccl"] = "auto"
    """How the server gets new weights. file: it reads them from `folder`. lora: it loads
    each adapter from `folder`. nccl: TRL's own way, for CUDA, with vllm installed beside the
    trainer. auto: lora for LoRA without modules_to_save where the server can, else file."""
    folder: Path | None = None
    """Where weights are written, for file and lora under the same path for the server. None: in the
    run folder."""
    verify_sync: Literal["first", "always", "never"] = "first"
    """After which syncs trainer and server are asked for the probabilities of the same tokens. With
    ZeRO-3 or FSDP it has to be never."""
    max_logprob_difference: Annotated[float, Field(gt=0)] | None = None
    """The run stops when they differ by more in the mean. None: by dtype, 1e-3 in float32 and 0.1
    in bfloat16."""
    ahead: Annotated[int, Field(ge=0, le=1)] = 0
    """1: while a round is trained on, the server writes the next one, with the weights of before.
    For `stage: grpo` with sync file or lora; TRL weighs tokens for the difference."""
    sync_deadline_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)] = 300.0
    request_timeout_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)] = 600.0
    """Seconds for all completions of one prompt."""
    restart_wait_s: Annotated[float, Field(ge=0, le=MAX_DEADLINE_S)] = 300.0
    """How long a server that died may take to come back; it gets the weights of the step again."""
    tries: Annotated[int, Field(ge=1, le=100)] = 3
    allow_untested_versions: bool = False
    """Go on with a vLLM that was never tried with this TRL."""


class TurnsConfig(Section):
    """Several turns per sample: an answer that does not pass comes back with the grader's
    feedback."""

    max: Annotated[int, Field(ge=1, le=32)] = 3
    """Answers of one sample, at most."""
    credit: Literal["turn", "chain"] = "turn"
    """turn: each answer has the advantage of its own reward over those of the same turn in its
    group. chain: all answers of a sample have the advantage of its last reward."""
    window: Count | None = None
    """Tokens of a whole chain, at most. None: the model's own window. Set it for a vLLM server with
    a smaller one."""


class TaskSampling(Section):
    """Which tasks a step's completions are spent on."""

    refill: Annotated[int, Field(ge=0, le=16)] = 0
    """Further rounds of generation per step, at most, in which other tasks replace groups whose
    completions all earned the same."""


class EvaluationConfig(Section):
    """How the held-out tasks are measured during a run, if there are any."""

    every_steps: Annotated[int, Field(ge=0)] = 0
    """0: only before the first step and after the last."""
    samples: Annotated[int, Field(ge=0)] = 4
    """Completions per task at `temperature`; 0 leaves them out."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    greedy: bool = True
    """Also one completion per task without sampling."""
    limit: Count | None = None
    turns: Annotated[int, Field(ge=1, le=32)] | None = None
    """Answers of one chain, at most. None: as in training."""
    batch_size: Count = 256
    """Completions generated at once."""


class StopOnKl(Section):
    """How far a run may go from its reference model: it ends in order then, with its final model
    and measurement."""

    kl: Annotated[float, Field(gt=0)] | None = None
    """Mean KL to the reference model above which the run ends."""
    kl_warning: Annotated[float, Field(gt=0)] | None = None
    """Mean KL above which training.log has a warning."""
    steps: Count = 20
    """Logged steps that a mean is taken over."""


class StopWhen(StopOnKl):
    """When a run on rewards has collapsed: KL, entropy, groups without spread, held-out tasks that
    bring no gain."""

    min_entropy: Annotated[float, Field(gt=0)] | None = None
    """Mean entropy per token, in nats, below which the run ends: a policy that is certain explores
    no more."""
    no_spread: Share | None = None
    """Mean share of groups whose completions all earned the same above which the run ends."""
    held_out_flat: Count | None = None
    """The run ends when so many measurements of the held-out tasks in a row brought no gain while
    the reward rose."""


class RunConfig(Section):
    """Keys of every stage of training."""

    TRL_CLASSES: ClassVar[Mapping[tuple[str, ...], str]] = {}
    """Sections that hold options of a configuration class of TRL or transformers, and which."""
    SET_ELSEWHERE: ClassVar[Mapping[str, str]] = {}
    """Options of those that the trainer sets itself, and where a person sets them."""

    model: Annotated[ModelConfig, BeforeValidator(wrap_model_name)]
    lora: LoraSettings | None = None
    """None: all weights are trained."""
    on_out_of_memory: Literal["halve", "stop"] = "halve"
    """halve: fewer samples at a time and as many more accumulated, so that an update still sees as
    many."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 42
    output_dir: Path
    """The run folder. Starting again with the same one resumes from its last checkpoint."""

    @property
    def options_name(self) -> str:
        """The section that bare options of the command line belong to."""
        return next(iter(self.TRL_CLASSES))[0]

    @property
    def options(self) -> dict[str, Any]:
        """What the stage's own section says."""
        return dict(getattr(self, self.options_name))

    @model_validator(mode="after")
    def _check_quantization(self) -> RunConfig:
        if self.model.load_in_4bit and self.lora is None:
            raise ValueError(
                "model.load_in_4bit needs lora: quantized weights cannot be trained themselves"
            )
        return self


OWN_NAMES = {
    "output_dir": "set `output_dir` at the top level",
    "seed": "set `seed` at the top level",
    "resume_from_checkpoint": "use `--resume`",
    "use_cpu": "set `model.device: cpu`",
    "trust_remote_code": "set `model.trust_remote_code`",
    "model_init_kwargs": (
        "set `model.dtype`, `model.revision`, `model.attn_implementation` or `model.load_in_4bit`"
    ),
    "reward_weights": "set `reward.weight` and those of `reward.models` and `reward.functions`",
    "disable_tqdm": "leave it out: each logged step is a line",
    "push_to_hub": (
        "leave it out: it would upload the whole run folder, with tests and completions; when the"
        " run is done, upload the model alone: gradus push RUN NAME"
    ),
    "eval_strategy": (
        "set `evaluation.every_steps`, 0 to measure only before and after, or `data.held_out: 0`"
    ),
    "chat_template_kwargs": "set `prompt.chat_template_kwargs`",
    "remove_unused_columns": "leave it out: the reward needs the columns",
}
"""TRL options that this trainer sets itself, and where a person sets them."""


class TrainConfig(RunConfig):
    """One training run on rewards."""

    TRL_CLASSES: ClassVar[Mapping[tuple[str, ...], str]] = {
        ("grpo",): "GRPOConfig",
        ("rloo",): "RLOOConfig",
        ("warm_start", "sft"): "SFTConfig",
    }
    SET_ELSEWHERE: ClassVar[Mapping[str, str]] = OWN_NAMES

    stage: Literal["grpo", "rloo"] = "grpo"
    """Which of the two learns from the rewards."""
    data: DataConfig
    prompt: PromptConfig = PromptConfig()
    reward: RewardConfig
    warm_start: WarmStart | None = None
    grpo: dict[str, Any] = {}
    """TRL's GRPOConfig, by its own names."""
    rloo: dict[str, Any] = {}
    """TRL's RLOOConfig, by its own names, for `stage: rloo`."""
    generation: GenerationConfig = GenerationConfig()
    turns: TurnsConfig | None = None
    """None: one answer per sample."""
    task_sampling: TaskSampling = TaskSampling()
    stop_when: StopWhen = StopWhen()
    """Rules that end a run which has collapsed; none by default."""
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def options_name(self) -> str:
        return self.stage

    @model_validator(mode="after")
    def _check_other_section(self) -> TrainConfig:
        other = "rloo" if self.stage == "grpo" else "grpo"
        if getattr(self, other):
            raise ValueError(
                f"stage: {self.stage} takes its options from {self.stage}:, but {other}: is given"
            )
        return self

    @model_validator(mode="after")
    def _check_grader(self) -> TrainConfig:
        if self.reward.grader is None and (
            self.data.eval_dataset is not None or self.data.held_out > 0
        ):
            raise ValueError(
                "data.eval_dataset and data.held_out need reward.grader: reward models pass nothing"
            )
        return self

    @model_validator(mode="after")
    def _check_template(self) -> TrainConfig:
        if "{prompt}" not in self.prompt.template and self.reward.grader != "story":
            raise ValueError(
                "prompt.template has no {prompt}; {sprint_goal} alone is for grader: story"
            )
        return self

    @model_validator(mode="after")
    def _check_quantized_sync(self) -> TrainConfig:
        by_adapters = self.generation.backend == "vllm" and self.generation.sync == "lora"
        with_vllm = self.generation.backend == "vllm" or self.options.get("use_vllm")
        if self.model.load_in_4bit and with_vllm and not by_adapters:
            # All other ways hand over whole weights, and quantized ones are packed bytes.
            raise ValueError(
                "model.load_in_4bit with vLLM needs generation: {backend: vllm, sync: lora}"
            )
        return self


NAMED_ELSEWHERE = {
    "batch_size": "per_device_train_batch_size",
    "lr": "learning_rate",
    "epochs": "num_train_epochs",
    "max_prompt_length": "data.max_prompt_tokens",
    "dataset": "data.dataset",
    "dataset_path": "data.dataset",
    "model_name": "model.name",
    "load_4bit": "model.load_in_4bit",
    "lora_r": "lora.r",
    "lora_alpha": "lora.alpha",
    "lora_dropout": "lora.dropout",
    "use_lora": "lora.r",
    "vllm_endpoint": "generation.url",
    "resume": "--resume",
}
"""Names that other trainers and TRL's own scripts have for our settings."""


def describe_nearest(name: str, names: Sequence[str]) -> str:
    """Return the end of an error message about an unknown name."""
    close = difflib.get_close_matches(name, names, n=1)
    if name in NAMED_ELSEWHERE:
        close = [NAMED_ELSEWHERE[name]]
    return f"; did you mean {close[0]}?" if close else ""

"""Commands around models: `gradus train`, `merge`, `model`, `push`, `report`, `gate` and `gradus
pipeline run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradus.console import log_line
from gradus.errors import Misuse
from gradus.system_errors import require_writable, require_writable_file
from gradus.yaml_reader import read_mapping


def train(
    context: typer.Context,
    config: Annotated[
        str,
        typer.Argument(
            metavar="[STAGE] CONFIG", help="YAML file, such as configs/train/demo_ocaml.yaml"
        ),
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check and print the resolved config, without training"),
    ] = False,
    resume: Annotated[
        str, typer.Option(help="Checkpoint to resume from: auto, never, or a path")
    ] = "auto",
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Resume although settings or data differ from those recorded in the run folder",
        ),
    ] = False,
    env_file: Annotated[
        Path | None,
        typer.Option(help="File with variables of ocamler-grpo (.envrc); they override the config"),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Preset instead of CONFIG: quick (500 rows once) or standard (all rows, 3 times)"
        ),
    ] = None,
) -> None:
    """Train on rewards, demonstrations, preferences or plain text. Options after the config
    override it.

    \b
    gradus train configs/train/demo_ocaml.yaml --dry-run
    gradus train my.yaml --learning_rate 1e-6 --reward.deadline_s 30
    gradus train sft configs/train/sft_ocaml_qwen_1.5b.yaml
    gradus train configs/train/ocaml_qwen_1.5b.yaml --env-file .envrc
    gradus train sft --model Qwen/Qwen2.5-0.5B --dataset answers.jsonl --preset quick

    \b
    The config's `stage:` names the method; a STAGE before the config must be the same.
      sft       supervised, on demonstrations
      dpo       preferences: sigmoid, IPO and TRL's other losses
      reward    reward model, from preferences
      grpo      rewards of graders, of reward models, or both (default)
      rloo      the same, with another baseline
      pretrain  plain text, in growing blocks
    TRL has no PPO any more: use rloo, or grpo, with `reward.models`.
    """
    from trainer.config.env_file import merge_env_file
    from trainer.config.presets import apply_preset
    from trainer.config.stages import STAGES
    from trainer.train import main as train_main

    # PPO, to be told what became of it
    is_stage = config in (*STAGES, "ppo")
    stage = config if is_stage else None
    arguments = [*context.args] if is_stage else [config, *context.args]
    if preset is not None:
        path, overrides = apply_preset(stage, preset, arguments)
    elif not arguments or arguments[0].startswith("-"):
        raise Misuse(
            f"gradus train {config}: name the config, for example configs/train/demo_ocaml.yaml, or"
            " give --preset quick"
        )
    else:
        path = Path(arguments[0])
        overrides = arguments[1:]
    if env_file is not None:
        stage_name = stage or read_mapping(path).get("stage", "grpo")
        overrides, messages = merge_env_file(overrides, env_file, str(stage_name))
        for line in messages:
            log_line(f"gradus: {env_file}: {line}")
    status = train_main(
        path,
        overrides,
        dry_run=dry_run,
        resume=resume,
        stage=stage,
        accept_changes=accept_changes,
    )
    raise typer.Exit(status)


def merge(
    adapter: Annotated[
        Path,
        typer.Argument(
            metavar="ADAPTER", help="Folder of an adapter, or of a run that trained one"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder to write", show_default="merged, beside the adapter"
        ),
    ] = None,
    gguf: Annotated[
        str | None,
        typer.Option(
            help="Write a GGUF file of this type too, with llama.cpp: f16, bf16, q8_0 ..."
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Type of the weights: auto (the base model's), float32, bfloat16 or float16"
        ),
    ] = "auto",
) -> None:
    """Merge an adapter into its base model, with the tokenizer, and check that the logits stay the
    same."""
    from trainer.models.merge import TOLERANCES
    from trainer.models.merge import main as merge_main

    if out is not None:
        require_writable(out)
    if dtype not in ("auto", *TOLERANCES):
        raise Misuse(f"--dtype {dtype}: use one of auto, {', '.join(TOLERANCES)}")
    print(merge_main(adapter, out, gguf, dtype, log_line))


def model(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="YAML file, such as configs/models/llama_7b.yaml"),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the number of parameters")
    ] = False,
) -> None:
    """Create an untrained model with its tokenizer, for `gradus train pretrain`, and print its
    number of parameters."""
    from trainer.models.fresh import main as model_main

    if not dry_run:
        require_writable(out)
    count = model_main(config, out, dry_run=dry_run)
    print(f"{count:,} parameters" + ("" if dry_run else f" in {out}"))


def launch(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="YAML file, such as configs/train/story_cot.yaml"),
    ],
    train: Annotated[
        int, typer.Option(min=1, help="GPUs of each machine that train: the first ones")
    ] = 1,
    vllm: Annotated[
        int,
        typer.Option(min=1, help="GPUs of the vLLM server: the next ones of the first machine"),
    ] = 1,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Completions of one update", show_default="the config's"),
    ] = None,
    data_parallel: Annotated[
        int,
        typer.Option(min=1, help="Copies of the model in the server, which share its GPUs evenly"),
    ] = 1,
    machines: Annotated[int, typer.Option(min=1, help="Machines that train")] = 1,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of the first machine, for the others")
    ] = "127.0.0.1",
    run: Annotated[
        bool, typer.Option("--run", help="Run the commands of this machine, not only print them")
    ] = False,
    rank: Annotated[
        int, typer.Option(min=0, help="With --run: number of this machine, the first being 0")
    ] = 0,
) -> None:
    """Print or run the commands that split GPUs between a vLLM server and training.

    Refuses what TRL would refuse on these GPUs. Several machines share the folder of the run.

    \b
    gradus launch configs/train/story_cot.yaml --train 2 --vllm 2 --batch 48
    gradus launch configs/train/story_cot.yaml --train 4 --vllm 4 --data-parallel 2 --batch 48
    gradus launch configs/train/story_cot.yaml --train 4 --vllm 4 --machines 2 --host 10.0.0.1
    """
    from trainer.config.launch import Machines, plan_launch
    from trainer.config.run import TrainConfig
    from trainer.config.stages import load_stage
    from trainer.data.tasks import load_tasks
    from trainer.pipeline.launch import run_commands

    def count_tasks(settings: TrainConfig) -> int | None:
        name = settings.data.dataset
        if not name.startswith("demo:") and not Path(name).is_file():
            return None  # on the hub, which this command does not ask
        return len(load_tasks(settings.data, settings.reward.grader, settings.seed).train)

    wanted = Machines(train, vllm, data_parallel, machines, host)
    plan = plan_launch(config, wanted, batch, count_tasks)
    if not 0 <= rank < machines:
        raise Misuse(f"--rank {rank}: must be below --machines {machines}")
    if run:
        folder = Path(load_stage(config).output_dir)
        raise typer.Exit(run_commands(plan[rank], folder / "vllm.log"))
    for number, commands in enumerate(plan):
        if machines > 1:
            print(f"# machine {number}")
        print(*commands, sep="\n")


def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder of a run or an evaluation, for example runs/demo"
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write", show_default="report.html in the folder")
    ] = None,
) -> None:
    """Write the dashboard's page of a run as one HTML file that loads nothing."""
    from trainer.evaluate.report import write_report

    if not run.is_dir():
        raise Misuse(f"{run}: not the folder of a run")
    target = out or run / "report.html"
    require_writable_file(target)
    write_report(run, target)
    print(target)


def push(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of a finished run, or of a merged model"),
    ],
    repository: Annotated[
        str, typer.Argument(metavar="NAME", help="Repository on the hub, such as my-team/my-model")
    ],
    is_public: Annotated[
        bool, typer.Option("--public", help="Make a new repository public; else it is private")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the files and the card")
    ] = False,
) -> None:
    """Upload a trained model to the model hub: weights, tokenizer and a model card alone.

    Tests, completions, settings and logs stay here. HF_ENDPOINT names another hub.

    \b
    gradus push runs/ocaml_qwen_1.5b my-team/ocaml-qwen --dry-run
    gradus push runs/ocaml_qwen_1.5b my-team/ocaml-qwen
    """
    from trainer.models.push import prepare_upload
    from trainer.models.push import push as upload_model

    upload = prepare_upload(run)
    if dry_run:
        for name in upload.files:
            print(upload.folder / name)
        print(f"\n{upload.card}")
        return
    log_line(f"uploading {len(upload.files)} files of {upload.folder} and a model card")
    print(upload_model(upload, repository, is_private=not is_public))


pipeline_app = typer.Typer(
    help="Run several commands in sequence, with gates between them.", no_args_is_help=True
)


@pipeline_app.command("run")
def run(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="YAML file, such as configs/pipelines/demo.yaml"),
    ],
    start: Annotated[
        str | None, typer.Option("--from", help="Run this stage and all later ones again")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check the settings of all stages and print the plan, without running it",
        ),
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting, a.b=value; may be repeated"),
    ] = None,
) -> None:
    """Run or resume a pipeline. Completed stages are skipped, even after the process was killed.

    A stage whose settings or inputs have changed runs again, with all later ones. Exit status 0
    when every stage is done, 1 when a gate failed, 2 for misuse, 3 when a stage had a fault, 4 when
    one failed otherwise.

    \b
    gradus pipeline run configs/pipelines/demo.yaml
    gradus pipeline run configs/pipelines/ocaml.yaml --dry-run
    gradus pipeline run my.yaml --from grpo --set stages.grpo.set.learning_rate=1e-6
    """
    from gradus.cli import check_words
    from trainer.pipeline.run import main

    raise typer.Exit(main(config, change or (), start, check_words, dry_run=dry_run))


def gate(
    gates: Annotated[
        Path, typer.Argument(metavar="GATES", help="YAML or JSON file with gates and their model")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Record to write", show_default="promotion.json beside GATES"),
    ] = None,
) -> None:
    """Check evaluation metrics against thresholds.

    A metric passes if the worse bound of its confidence interval passes; several p-values are
    Holm-corrected.

    Exit status 0 when all gates passed, 1 when one did not. A metric that is missing or not finite
    fails its gate. The last line is the path of the record.
    """
    from trainer.pipeline.gate_command import main

    raise typer.Exit(main(gates, out))

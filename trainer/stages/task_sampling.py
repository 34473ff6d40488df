"""Which tasks GRPO spends its completions on: groups without spread are replaced, tasks are drawn
by difficulty.

A group whose completions all earned the same has no advantages. Both ways are off by default
(docs/train/grpo.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch.utils.data import Sampler
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.runs.distributed import count_processes

NO_SPREAD = 1e-6
"""Advantages up to this are those of a group whose rewards are equal."""
ROUNDS_LATE = 2
"""A draw knows the rewards of all rounds but the last one: the data loader draws one round
ahead."""
DECAY, FLOOR, UNSEEN = 0.5, 0.05, 0.5
LEFT_PADDED = ("prompt_ids", "prompt_mask")

Group = dict[str, Any]
"""Rows of one task in a round of generation, by TRL's names."""


class TaskRates(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Running mean reward of each task, by its prompt id. It is part of every checkpoint's
    trainer_state.json."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.rounds = 0
        """Rounds of generation that were seen."""
        self._recent: list[tuple[int, dict[str, float]]] = []
        """Rounds that `rates` do not have yet, with the means of their groups."""

    def see(self, means: Mapping[str, float]) -> None:
        """Take the mean rewards of the groups of the next round."""
        self._recent.append((self.rounds, dict(means)))
        self.rounds += 1

    def add(self, means: Mapping[str, float]) -> None:
        """Take further groups of the round that was seen last."""
        self._recent[-1][1].update(means)

    def weights(self, tasks: Sequence[str], number: int) -> torch.Tensor:
        """Weights of the tasks for round `number`: 4m(1-m) for a mean reward m, at least `FLOOR`, 1
        if never seen."""
        while self._recent and self._recent[0][0] <= number - ROUNDS_LATE:
            for task, mean in self._recent.pop(0)[1].items():
                self.rates[task] = DECAY * self.rates.get(task, mean) + (1 - DECAY) * mean
        rates = torch.tensor(
            [self.rates.get(task, UNSEEN) for task in tasks], dtype=torch.float64
        ).clamp(0, 1)
        return (4 * rates * (1 - rates)).clamp(min=FLOOR)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {
            "args": {},
            "attributes": {"rates": self.rates, "rounds": self.rounds, "recent": self._recent},
        }

    def load(self, checkpoint: Path) -> None:
        """Raises Misuse for a checkpoint of a run without such rates."""
        states = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]
        if type(self).__name__ not in states:
            raise Misuse(
                f"{checkpoint} was written without task_sampling.by_difficulty; begin anew with"
                " --resume never"
            )
        kept = states[type(self).__name__]["attributes"]
        self.rates, self.rounds = dict(kept["rates"]), kept["rounds"]
        self._recent = [(number, dict(means)) for number, means in kept["recent"]]


class WeightedTasks(Sampler[int]):
    """In place of TRL's RepeatSampler: each round draws different tasks by weight, each `group`
    times.

    A draw depends on the seed, the round's number and the rates, so it is the same in all processes
    and after a resume.
    """

    shuffle = False

    def __init__(
        self,
        tasks: Sequence[str],
        rates: TaskRates,
        *,
        groups: int,
        group: int,
        repeats: int,
        seed: int,
        passes: int,
    ) -> None:
        """`passes` over the data were done before."""
        self._tasks, self._rates, self._seed, self._passes = tasks, rates, seed, passes
        self._groups, self._group, self._repeats = groups, group, repeats

    def __iter__(self) -> Iterator[int]:
        rounds = len(self._tasks) // self._groups
        first, self._passes = self._passes * rounds, self._passes + 1
        for number in range(first, first + rounds):
            weights = self._rates.weights(self._tasks, number)
            chosen = torch.multinomial(
                weights, self._groups, generator=_generator(self._seed, number)
            ).tolist()
            for _ in range(self._repeats):
                yield from (index for index in chosen for _ in range(self._group))

    def __len__(self) -> int:
        return len(self._tasks) // self._groups * self._groups * self._group * self._repeats


class Refilling:
    """Goes before a GRPO trainer in the list of bases: groups without spread are replaced by other
    tasks' groups.

    All processes generate equally often and for as many groups. A process that needs fewer than
    another leaves the rest unused.
    """

    args: Any
    state: Any
    accelerator: Any
    train_dataset: Any
    num_generations: int
    _metrics: Any
    _tokenizer: Any
    _faulted_B: Any

    refill_rounds = 0
    """Further rounds of generation per step, at most."""
    refills = False
    """This round replaces groups."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if not self.refill_rounds:
            return output
        groups = self._groups_of(output)
        useful, useless = (
            [one for one in groups if _has_spread(one)],
            [one for one in groups if not _has_spread(one)],
        )
        names = self.train_dataset["prompt_id"]
        asked = set(gather_object([row["prompt_id"] for row in inputs]))
        # Metrics stay those of the tasks as they were drawn first.
        counts = {name: len(values) for name, values in self._metrics["train"].items()}
        rounds = written = 0
        self.refills = True
        for number in range(self.refill_rounds):
            missing = max(gather_object([len(groups) - len(useful)]))
            left = [index for index, name in enumerate(names) if name not in asked]
            missing = min(missing, len(left) // self.accelerator.num_processes)
            if missing == 0:
                break
            draw = _generator(
                self.args.seed, -1 - self.state.global_step * self.refill_rounds - number
            )
            chosen = [left[place] for place in torch.randperm(len(left), generator=draw).tolist()]
            asked |= {names[index] for index in chosen[: missing * self.accelerator.num_processes]}
            own = chosen[self.accelerator.process_index * missing :][:missing]
            rows = [
                dict(self.train_dataset[index])
                for index in own
                for _ in range(self.num_generations)
            ]
            found = self._groups_of(super()._generate_and_score_completions(rows))  # type: ignore[misc]
            useful += [one for one in found if _has_spread(one)]
            rounds, written = rounds + 1, written + missing * self.accelerator.num_processes
        self.refills = False
        kept = (useful + useless)[: len(groups)]
        with_spread = gather_object([sum(map(_has_spread, kept))])
        metrics = self._metrics["train"]
        for name, values in list(metrics.items()):
            # What counts tokens is a running sum: its last value is the one of all rounds.
            kept_values = values[-1:] if name == "num_tokens" else values[: counts.get(name, 0)]
            if kept_values:
                metrics[name] = kept_values
            else:
                del metrics[name]  # TRL divides by the number of values
        metrics["refill/rounds"].append(rounds)
        metrics["refill/groups"].append(written)
        metrics["refill/with_spread"].append(
            sum(with_spread) / (len(groups) * self.accelerator.num_processes)
        )
        return self._joined(kept, output) if rounds else output

    def _groups_of(self, output: Mapping[str, Any]) -> list[Group]:
        rows, size = len(output["advantages"]), self.num_generations
        named = {
            name: value for name, value in output.items() if torch.is_tensor(value) and value.dim()
        }
        named.setdefault("tool_mask", torch.ones_like(output["completion_mask"]))
        named["faulted"] = self._faulted_B[self.accelerator.process_index * rows :][:rows]
        return [
            {name: one[start : start + size] for name, one in named.items()}
            for start in range(0, rows, size)
        ]

    def _joined(self, groups: Sequence[Group], output: Mapping[str, Any]) -> dict[str, Any]:
        """The groups as one batch, in place of the one that TRL made."""
        pad_id = self._tokenizer.pad_token_id
        joined = {name: _stacked([one[name] for one in groups], name, pad_id) for name in groups[0]}
        faulted_B = self.accelerator.gather(joined.pop("faulted"))
        tokens = (joined["completion_mask"] * joined["tool_mask"]).sum()
        joined["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        if faulted_B.any():
            joined["completions_per_graded"] = len(faulted_B) / (~faulted_B).sum().clamp(min=1)
        return joined


def refuse_wrong_sampling(config: TrainConfig, options: Any) -> None:
    """Raises Misuse for settings that exclude those of `task_sampling`. `options` is TRL's
    GRPOConfig or RLOOConfig."""
    asked, group = config.task_sampling, options.num_generations
    on_process = options.generation_batch_size // count_processes()
    wrong = (
        (
            "refill",
            config.stage != "grpo",
            "stage: rloo",
            "its output cannot be joined; use stage: grpo",
        ),
        (
            "refill",
            config.turns is not None,
            "turns",
            "a group that is alike in one turn can differ in another",
        ),
        (
            "refill",
            getattr(options, "scale_rewards", None) == "batch",
            "scale_rewards: batch",
            "the spread of each round would scale its own groups; use group or none",
        ),
        (
            "refill",
            getattr(options, "multi_objective_aggregation", None) == "normalize_then_sum",
            "multi_objective_aggregation: normalize_then_sum",
            "it normalizes over a round, and a step has several; leave it out",
        ),
        (
            "refill",
            on_process % group != 0,
            f"{on_process} completions per process",
            f"groups of num_generations {group} would lie on two processes",
        ),
        (
            "by_difficulty",
            config.reward.grader is None,
            "reward models alone",
            (
                "their scores do not say what share of a task's completions is right; set"
                " reward.grader"
            ),
        ),
        (
            "by_difficulty",
            options.dataloader_num_workers > 0,
            "dataloader_num_workers",
            "tasks would be drawn before the rewards that weigh them are known; leave it out",
        ),
        (
            "by_difficulty",
            not options.shuffle_dataset,
            "data.order or shuffle_dataset: false",
            "it draws at random",
        ),
    )
    for name, holds, other, why in wrong:
        if holds and getattr(asked, name):
            raise Misuse(f"task_sampling.{name} cannot be used with {other}: {why}")


def means_of_groups(tasks: Sequence[str], rewards_B: torch.Tensor, group: int) -> dict[str, float]:
    """Mean rewards by task, without the faulted completions (NaN); tasks without any reward are
    left out."""
    means = rewards_B.view(-1, group).nanmean(dim=1).tolist()
    return {task: mean for task, mean in zip(tasks[::group], means, strict=True) if mean == mean}


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + number)


def _has_spread(group: Group) -> bool:
    return bool(group["advantages"].abs().max() > NO_SPREAD)


def _stacked(parts: Sequence[Any], name: str, pad_id: int) -> Any:
    """One tensor of all rows, padded as TRL pads it."""
    if parts[0].dim() == 1:
        return torch.cat(list(parts))
    width, fill = max(part.shape[1] for part in parts), pad_id if name.endswith("_ids") else 0
    pads = [
        (width - one.shape[1], 0) if name in LEFT_PADDED else (0, width - one.shape[1])
        for one in parts
    ]
    return torch.cat(
        [
            torch.nn.functional.pad(one, pad, value=fill)
            for one, pad in zip(parts, pads, strict=True)
        ]
    )

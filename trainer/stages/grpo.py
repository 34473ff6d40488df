"""TRL's GRPO with `task_sampling.refill`: groups without spread, which have no advantages, are
replaced by other tasks' groups (docs/train/grpo.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import filterfalse
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer
from trl.trainer.utils import pad

from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.runs.distributed import count_processes
from trainer.stages.online import OnRewards

NO_SPREAD = 1e-6
"""Advantages up to this are those of a group whose rewards are equal."""
LEFT_PADDED = ("prompt_ids", "prompt_mask")

Group = dict[str, Any]
"""Rows of one task in a round of generation, by TRL's names."""


class GradusTrainer(OnRewards, GRPOTrainer):  # type: ignore[misc]
    """GRPO."""

    refill_rounds = 0
    """Further rounds of generation per step, at most."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        return self._refill(output, inputs) if self.refill_rounds else output

    def _refill(self, output: Mapping[str, Any], inputs: Any) -> Mapping[str, Any]:
        """Return the round with groups without spread replaced, as far as further rounds find
        better ones.

        All processes generate equally often and for as many groups. A process that needs fewer than
        another leaves the rest unused.
        """
        groups = self._split_groups(output)
        useful = list(filter(_has_spread, groups))
        useless = list(filterfalse(_has_spread, groups))
        prompt_ids = set(gather_object([row["prompt_id"] for row in inputs]))
        metrics = self._metrics["train"]
        metrics_of_first = {name: list(values) for name, values in metrics.items()}
        processes = self.accelerator.num_processes
        rounds = 0
        generated = 0
        for number in range(self.refill_rounds):
            missing = max(gather_object([len(groups) - len(useful)]))
            drawn = self._sample_rows(prompt_ids, missing, number)
            missing = len(drawn) // processes
            if missing == 0:
                break
            prompt_ids |= {self.train_dataset[index]["prompt_id"] for index in drawn}
            indices = drawn[self.accelerator.process_index * missing :][:missing]
            rows = []
            for index in indices:
                rows += [dict(self.train_dataset[index]) for _ in range(self.num_generations)]
            fresh_groups = self._split_groups(super()._generate_and_score_completions(rows))
            useful += list(filter(_has_spread, fresh_groups))
            rounds += 1
            generated += len(drawn)
        selected = (useful + useless)[: len(groups)]
        with_spread = sum(gather_object([sum(map(_has_spread, selected))]))
        # Metrics stay those of the tasks as they were drawn first; tokens are a running sum.
        metrics_of_first["num_tokens"] = metrics["num_tokens"][-1:]
        metrics.clear()
        metrics.update(metrics_of_first)
        metrics["refill/rounds"].append(rounds)
        metrics["refill/groups"].append(generated)
        metrics["refill/with_spread"].append(with_spread / (len(groups) * processes))
        return self._join_groups(selected) if rounds else output

    def _sample_rows(self, prompt_ids: set[str], missing: int, number: int) -> list[int]:
        """Return rows of tasks that were not asked yet, `missing` for each process, or as many as
        there are for all of them; the same rows in all processes and after a resume."""
        names = self.train_dataset["prompt_id"]
        unused = []
        for index, name in enumerate(names):
            if name not in prompt_ids:
                unused.append(index)
        missing = min(missing, len(unused) // self.accelerator.num_processes)
        place = -1 - self.state.global_step * self.refill_rounds - number
        draw = torch.Generator().manual_seed(self.args.seed * 1_000_003 + place)
        order = torch.randperm(len(unused), generator=draw).tolist()
        return [unused[index] for index in order[: missing * self.accelerator.num_processes]]

    def _split_groups(self, output: Mapping[str, Any]) -> list[Group]:
        rows = len(output["advantages"])
        size = self.num_generations
        named = {}
        for name, value in output.items():
            if torch.is_tensor(value) and value.dim():
                named[name] = value
        named.setdefault("tool_mask", torch.ones_like(output["completion_mask"]))
        named["faulted"] = self._faulted_B[self.accelerator.process_index * rows :][:rows]
        groups = []
        for start in range(0, rows, size):
            groups.append({name: tensor[start : start + size] for name, tensor in named.items()})
        return groups

    def _join_groups(self, groups: Sequence[Group]) -> dict[str, Any]:
        """Return the groups as one batch, padded as TRL pads it."""
        joined = {}
        for name in groups[0]:
            fill = self._tokenizer.pad_token_id if name.endswith("_ids") else 0
            side = "left" if name in LEFT_PADDED else "right"
            rows = [row for group in groups for row in group[name]]
            joined[name] = pad(rows, fill, side) if rows[0].dim() else torch.stack(rows)
        faulted_B = self.accelerator.gather(joined.pop("faulted"))
        tokens = (joined["completion_mask"] * joined["tool_mask"]).sum()
        joined["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        if faulted_B.any():
            joined["completions_per_graded"] = len(faulted_B) / (~faulted_B).sum().clamp(min=1)
        return joined


def refuse_wrong_refill(config: TrainConfig, options: Any) -> None:
    """Raise Misuse for settings that exclude `task_sampling.refill`. `options` is TRL's GRPOConfig
    or RLOOConfig."""
    if not config.task_sampling.refill:
        return
    if config.stage != "grpo":
        why = "stage: rloo: its output cannot be joined; use stage: grpo"
    elif config.turns is not None:
        why = "turns: a group that is alike in one turn can differ in another"
    elif options.scale_rewards == "batch":
        why = (
            "scale_rewards: batch: the spread of each round would scale its own groups; use group"
            " or none"
        )
    elif options.multi_objective_aggregation == "normalize_then_sum":
        why = (
            "multi_objective_aggregation: normalize_then_sum: it normalizes over a round, and a"
            " step has several; leave it out"
        )
    elif options.generation_batch_size // count_processes() % options.num_generations != 0:
        why = (
            f"{options.generation_batch_size} completions in {count_processes()} processes: groups"
            f" of num_generations {options.num_generations} would lie on two processes"
        )
    else:
        return
    raise Misuse(f"task_sampling.refill cannot be used with {why}")


def _has_spread(group: Group) -> bool:
    return bool(group["advantages"].abs().max() > NO_SPREAD)

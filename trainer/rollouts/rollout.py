"""Writing chains: TRL's `rollout_func` for several turns, and the reward function that goes with
it.

TRL's `rollout_func` is experimental (1.16); everything that depends on it is in this module. Every
turn is written by TRL's own generation, whichever backend that is, and graded while others of the
same turn are still being written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from accelerate.utils import gather_object
from trl.chat_template_utils import get_training_chat_template

from gradus.contract import Faulted, Graded
from gradus.errors import Misuse
from gradus.feedback import render_next_turn
from gradus.tasks.base import clean_text
from trainer.config.run import TurnsConfig
from trainer.rewards.judge import Judge, Result, add_opening, compute_judge_metrics
from trainer.rollouts.chain import Chain, StopReason, Turn
from trainer.runs.distributed import run_on_all_ranks

Watch = Callable[[Sequence[str]], AbstractContextManager[None]]
"""Takes the prompts' ids of what is generated inside the block; an empty id marks a row that is not
used."""


@dataclass
class Rollout:
    """TRL's `rollout_func`. Set `tasks` before each round of generation; read `chains` after it."""

    config: TurnsConfig
    judge: Judge
    opening: str
    """What the prompt has already written of each answer."""
    watch: Watch = lambda names: nullcontext()
    """Sends answers to the judge as they end, where they are not graded together."""
    tasks: Sequence[str] = ()
    """The prompts' ids of the rows, in their order."""
    chains: list[Chain] = field(default_factory=list)
    """The chains of the last round."""
    _template: str | None = field(default=None, init=False)
    _template_kwargs: Mapping[str, Any] = field(default_factory=dict, init=False)
    _window: int | None = field(default=None, init=False)

    def prepare(self, trainer: Any) -> None:
        """Choose the chat template and the window. Raises Misuse for a template that cannot be
        used."""
        tokenizer = trainer.processing_class
        self._template_kwargs = trainer.chat_template_kwargs or {}
        self._template = select_template(tokenizer, trainer.eos_token_ids, self._template_kwargs)
        if self._template is not None:
            trainer.chat_template = self._template  # the first prompt is rendered by it as well
        model_window = getattr(trainer.model.config, "max_position_embeddings", None)
        self._window = min(
            (limit for limit in (self.config.window, model_window) if limit is not None),
            default=None,
        )

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any] | None]:
        prompt_ids_B, _, _ = trainer._tokenize_prompts(prompts)
        chains = []
        for row in zip(self.tasks, prompts, map(list, prompt_ids_B), strict=True):
            chains.append(Chain(*row))
        self.chains = chains
        open_chains = chains
        has_logprobs = False
        last_messages: list[str | None] = [None] * len(chains)
        for turn in range(1, self.config.max + 1):
            # All processes generate equally often and for as many prompts: TRL 1.16 gives the
            # completions of a vLLM server to other processes otherwise, and a collective call that
            # one process leaves out never returns.
            width = max(gather_object([len(open_chains)]))
            if width == 0:
                break
            rows = [chain.prompt_ids + chain.ids_T for chain in open_chains]
            rows += [chains[0].prompt_ids] * (width - len(rows))
            names = [chain.task for chain in open_chains] + [""] * (width - len(open_chains))
            group = trainer.num_generations if turn == 1 else 1
            with self.watch(names):
                completions, logprobs = trainer._generate_single_turn(rows, None, {}, group)
            has_logprobs = logprobs is not None
            number = len(open_chains)
            sampled = logprobs[:number] if logprobs is not None else [None] * number
            spans = []
            for chain, *tokens in zip(open_chains, completions[:number], sampled, strict=True):
                spans.append(chain.add_model(*tokens))
            texts = trainer.processing_class.batch_decode(
                completions[:number], skip_special_tokens=True
            )
            samples = [(chain.task, text) for chain, text in zip(open_chains, texts, strict=True)]
            grade = partial(self._grade, trainer, samples, turn)
            results = run_on_all_ranks(grade)
            for chain, before, text, result, span in zip(
                open_chains, last_messages, texts, results, spans, strict=True
            ):
                chain.turns.append(Turn(before, text, result, *span))
            continued = []
            last_messages = []
            for chain in open_chains:
                message = self._next_message(chain, trainer)
                if message is not None:
                    continued.append(chain)
                    last_messages.append(message)
            open_chains = continued
        return {
            "prompt_ids": [chain.prompt_ids for chain in chains],
            "completion_ids": [chain.ids_T for chain in chains],
            "logprobs": [chain.logprobs_T for chain in chains] if has_logprobs else None,
            "env_mask": [chain.mask_T for chain in chains],
            "chain": chains,
        }

    def _grade(self, trainer: Any, samples: list[tuple[str, str]], turn: int) -> list[Result]:
        if not samples:
            return []
        prefix = f"{trainer.state.global_step + 1}.{turn}."
        with self.judge.grading():
            return asyncio.run_coroutine_threadsafe(
                self.judge.collect_results(samples, prefix), trainer.async_loop
            ).result()

    def _next_message(self, chain: Chain, trainer: Any) -> str | None:
        """Return the user's next message, which is added to the chain; None where the chain
        ends."""
        last = chain.turns[-1]
        if isinstance(last.result, Faulted):
            chain.stopped = StopReason.FAULTED
        elif last.passed:
            chain.stopped = StopReason.PASSED
        elif chain.ids_T[-1] not in trainer.eos_token_ids:
            chain.stopped = StopReason.CUT
        elif len(chain.turns) == self.config.max:
            chain.stopped = StopReason.TURNS
        else:
            name = self.judge.config.judge
            message = clean_text(
                render_next_turn(name, last.result, add_opening(self.opening, last.text))
            )
            template_args = self._template, message, trainer.eos_token_ids, self._template_kwargs
            ids = encode_user_message(trainer.processing_class, *template_args)
            assert ids is not None, "`select_template` has accepted this template"
            length = (
                len(chain.prompt_ids) + len(chain.ids_T) + len(ids) + trainer.max_completion_length
            )
            if self._window is None or length <= self._window:
                chain.add_user(ids)
                return message
            chain.stopped = StopReason.WINDOW
        return None

    # ------------------------------------------------------------------------------------- rewards

    async def compute_rewards(
        self,
        *,
        chain: Sequence[Chain],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_columns: Any,
    ) -> list[float | None]:
        """Return one reward per chain, None where it ended in a fault. Raises GradingStopped past
        the fault budget."""
        last = [sample.turns[-1].result for sample in chain]
        for name, value in compute_judge_metrics(
            self.judge.name, [sample.task for sample in chain], last
        ).items():
            log_metric(name, value)
        for name, value in compute_chain_metrics(chain, self.config.max).items():
            log_metric(name, value)
        results = [turn.result for sample in chain for turn in sample.turns]
        self.judge.stop_past_budget(trainer_state.global_step + 1, results)
        return [sample.turns[-1].reward for sample in chain]


def compute_chain_metrics(chains: Sequence[Chain], turns: int) -> dict[str, float]:
    """Return metrics of one step, below `turns/`.

    `pass_by_<k>`: share of chains that passed in turn k or before; a chain with a fault before that
    counts in none. `asked_again`: share of chains with a second answer, and `repaired`: share of
    these that passed in the end. `tokens_<k>`: mean tokens of the k-th answers. `stopped/<reason>`:
    share of chains that ended so.
    """
    metrics: dict[str, float] = {}
    # A chain ends at a fault, so all its answers have verdicts if the last one has.
    judged = []
    for chain in chains:
        if isinstance(chain.turns[-1].result, Graded):
            judged.append(chain)
    again = [chain for chain in judged if len(chain.turns) > 1]
    for turn in range(1, turns + 1):
        if judged:
            # A chain ends when an answer passes, so its last one tells.
            passed = sum(chain.passed and len(chain.turns) <= turn for chain in judged)
            metrics[f"pass_by_{turn}"] = passed / len(judged)
        lengths = []
        for chain in chains:
            if len(chain.turns) >= turn:
                lengths.append(chain.turns[turn - 1].end - chain.turns[turn - 1].start)
        if lengths:
            metrics[f"tokens_{turn}"] = sum(lengths) / len(lengths)
    if judged:
        metrics["asked_again"] = len(again) / len(judged)
    if again:
        metrics["repaired"] = sum(chain.passed for chain in again) / len(again)
    for reason in StopReason:
        metrics[f"stopped/{reason.value}"] = sum(chain.stopped is reason for chain in chains) / max(
            len(chains), 1
        )
    return {f"turns/{name}": value for name, value in metrics.items()}


# ---------------------------------------------------------------------- the chat template

_BEFORE = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def select_template(
    tokenizer: Any, end_ids: Collection[int], kwargs: Mapping[str, Any]
) -> str | None:
    """Return a chat template that leaves earlier turns as they were; None for the tokenizer's own.

    TRL has such versions of the templates of known models: Qwen3's own rewrites earlier answers.
    Raises Misuse where there is none.
    """
    if encode_user_message(tokenizer, None, "c", end_ids, kwargs) is not None:
        return None
    try:
        template = get_training_chat_template(tokenizer)
    except ValueError:
        template = None
    if template is None or encode_user_message(tokenizer, template, "c", end_ids, kwargs) is None:
        raise Misuse(
            "turns: the chat template of this tokenizer writes an earlier answer differently once a"
            " turn follows, or does not end it with an end-of-sequence token. Use a model with"
            " another template"
        )
    return str(template)


def encode_user_message(
    tokenizer: Any,
    template: str | None,
    message: str,
    end_ids: Collection[int],
    kwargs: Mapping[str, Any],
) -> list[int] | None:
    """Return the tokens between an answer's end-of-sequence token and the next answer; None where
    the template does not leave the answer as it was, or does not end it so."""
    options = {
        "return_dict": True,
        **kwargs,
        **({} if template is None else {"chat_template": template}),
    }
    after = [*_BEFORE, {"role": "user", "content": message}]
    ids = list(tokenizer.apply_chat_template(_BEFORE, **options)["input_ids"])
    full_ids = list(
        tokenizer.apply_chat_template(after, add_generation_prompt=True, **options)["input_ids"]
    )
    end = max((place for place, token in enumerate(ids, start=1) if token in end_ids), default=0)
    return full_ids[end:] if end and full_ids[:end] == ids[:end] else None

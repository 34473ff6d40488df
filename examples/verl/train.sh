#!/bin/sh
# GRPO with verl; the options of model and hardware are those of your own script.
export GRADUS_URL=${GRADUS_URL:-http://127.0.0.1:8000} GRADUS_TASKS=${GRADUS_TASKS:-configs/tasks/ocaml.jsonl}
exec python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \
  data.train_files=ocaml.parquet data.val_files=ocaml.parquet \
  reward.custom_reward_function.path=pkg://gradus.integrations.verl \
  reward.custom_reward_function.name=compute_score \
  +reward.custom_reward_function.reward_kwargs.deadline_s=1800 \
  reward.reward_manager.name=naive "$@"

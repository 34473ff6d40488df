"""The stages of training that need no grader: supervised, preferences, reward models, continued pretraining.

`settings` says what each can be told, `rows` and `tokens` read what it learns from, one module each makes its trainer,
`run` goes from the one to the other. Learning from rewards is `trainer.grpo`'s, for GRPO and RLOO alike.
"""

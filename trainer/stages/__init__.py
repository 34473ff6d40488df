"""The stages of training: pretraining, supervised, preferences, reward models, and learning from
rewards (`rl`).

`settings` says what each can be told, `rows` and `tokens` read what it learns from. Each stage is a
class in a module of its own, of the shape of `base.Stage`, which also runs it. `online` holds TRL's
trainers that `rl` uses.
"""

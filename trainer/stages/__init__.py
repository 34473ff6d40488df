"""The stages of training, each a class of the shape of `base.Stage`, which also runs it."""

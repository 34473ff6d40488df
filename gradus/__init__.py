"""The SDK of Gradus. The distribution is called `gradus-rl`."""

__version__ = "0.2.0"

"""The SDK of Gradus. The distribution is called `gradus-rl`."""

__version__ = "0.1.0"

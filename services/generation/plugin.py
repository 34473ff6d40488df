"""vLLM plug-in: an entry point of the group `vllm.general_plugins`, in all its processes."""

from __future__ import annotations

ENGINE = "file"


def register() -> None:
    """Make `--weight-transfer-config '{"backend":"file"}'` known. vLLM may call this several
    times."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if ENGINE not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(
            ENGINE, "services.generation.file_engine", "FileEngine"
        )

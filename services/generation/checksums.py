"""What `gradus vllm` adds to vLLM's workers: checksums of the weights that they hold
(`--worker-extension-cls`), for a trainer that has just sent its own."""

from __future__ import annotations

from typing import Any

from gradus.weight_checksums import collect_adapter_checksums, collect_checksums


class ChecksumExtension:
    """Methods of a vLLM worker, which are called over `/collective_rpc`."""

    get_model: Any
    model_runner: Any

    def collect_weight_checksums(self) -> dict[str, Any]:
        return collect_checksums(self.get_model())

    def collect_newest_adapter_checksums(self) -> dict[str, Any]:
        """Those of the LoRA adapter that was loaded last."""
        manager = self.model_runner.lora_manager._adapter_manager
        newest = max(manager.list_adapters())
        return collect_adapter_checksums(
            manager.get_adapter(newest), manager.packed_modules_mapping
        )

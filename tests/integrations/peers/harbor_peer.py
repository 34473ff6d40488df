"""Harbor's reader of task folders: `harbor_peer.py FOLDER` prints what it makes of an export."""

import json
import sys
from pathlib import Path

from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import resolve_effective_verifier_env_config

folders = sorted(Path(sys.argv[1]).iterdir())
tasks = [Task(folder) for folder in folders if Task.is_valid_dir(folder)]
verifiers = [resolve_effective_verifier_env_config(task.config, None) for task in tasks]
found = {
    "invalid": len(folders) - len(tasks),
    "networks": sorted({verifier.network_mode.value for verifier in verifiers}),
    "artifacts": sorted({str(entry) for task in tasks for entry in task.config.artifacts}),
}
print("RESULT " + json.dumps(found))

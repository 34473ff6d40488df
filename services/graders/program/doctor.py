"""What this machine has for the program grader, for `gradus doctor`."""

from __future__ import annotations

import sys

from gradus.errors import InternalFault
from services.graders.program.config import load_config
from services.graders.program.languages import find_language


def look() -> str:
    if sys.platform != "linux":
        raise InternalFault("the program grader needs Linux", retryable=False)
    installed = []
    missing = []
    for name, settings in load_config().languages.items():
        language = find_language(name, settings)
        if language:
            installed.append(f"{name} ({language.version})")
        else:
            missing.append(f"{name} ({settings.package})")
    if not installed:
        raise InternalFault(f"no language is installed: {', '.join(missing)}", retryable=False)
    text = f"{len(installed)} languages: {', '.join(installed)}"
    return f"{text}; not installed: {', '.join(missing)}" if missing else text

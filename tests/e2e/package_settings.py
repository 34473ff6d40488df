"""Lets `pip` and `npm` inside an image build install from where this host's do; prints arguments
for `podman build`.

Usage: package_settings.py DIRECTORY. Writes DIRECTORY/pip.conf and DIRECTORY/npmrc, and mounts them
with every local file and directory that the host's settings name. Does not change the host's
settings, and nothing of them is kept in the repository.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

INSIDE = "/run/pip"
_MEANT_FOR_BUILDS = (
    "cert",
    "extra-index-url",
    "find-links",
    "index-url",
    "timeout",
    "default-timeout",
    "trusted-host",
)


def host_settings() -> dict[str, str]:
    """What `pip config list` says: option to value, the environment over the files as pip has
    it."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    pairs = [line.split("=", 1) for line in listed.splitlines() if "=" in line]
    pairs.sort(key=lambda pair: pair[0].startswith(":env:"))
    settings = {key.rpartition(".")[2]: ast.literal_eval(value) for key, value in pairs}
    return {key: value for key, value in settings.items() if key in _MEANT_FOR_BUILDS}


def read_npm_settings() -> dict[str, str]:
    """Return npm's registry and certificates on this host; nothing without npm."""
    if shutil.which("npm") is None:
        return {}
    listed = subprocess.run(
        ["npm", "config", "list", "--json"], capture_output=True, text=True, check=True
    ).stdout
    settings = json.loads(listed)
    return {key: settings[key] for key in ("registry", "cafile") if settings.get(key)}


def moved(value: str, mounts: dict[str, str]) -> str:
    """`value` with local places renamed to where they are mounted; adds these to `mounts`, host
    path to path inside."""
    words = []
    for word in value.split():
        path = word.removeprefix("file://")
        if not (path.startswith("/") and os.path.exists(path)):
            words.append(word)
            continue
        # an index links to files beside it, so its parent comes along
        source, rest = os.path.split(path.rstrip("/")) if word.startswith("file://") else (path, "")
        inside = mounts.setdefault(source, f"{INSIDE}/{len(mounts)}")
        words.append(("file://" if rest else "") + "/".join(filter(None, [inside, rest])))
    return "\n    ".join(words)


def main(directory: Path) -> str:
    mounts: dict[str, str] = {}
    lines = [f"{key} = {moved(value, mounts)}" for key, value in host_settings().items()]
    directory.mkdir(parents=True)
    (directory / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    npm = [f"{key}={moved(value, mounts)}\n" for key, value in read_npm_settings().items()]
    (directory / "npmrc").write_text("".join(npm))
    for (
        source,
        inside,
    ) in mounts.items():  # mount points inside a read-only mount have to be there before
        point = directory / Path(inside).name
        point.mkdir() if os.path.isdir(source) else point.touch()
    volumes = {str(directory): INSIDE, **mounts}
    arguments = [f"--volume {source}:{inside}:ro" for source, inside in volumes.items()]
    files = {"PIP_CONFIG_FILE": "pip.conf", "NPM_CONFIG_USERCONFIG": "npmrc"}
    settings = [f"--build-arg {name}={INSIDE}/{file}" for name, file in files.items()]
    # the default is PyTorch's index, which this host's settings may not name
    settings.append("--build-arg PIP_EXTRA_INDEX_URL=")
    return " ".join([*settings, *arguments])


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))

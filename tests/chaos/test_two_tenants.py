"""A tenant with an ordinary key attacks: another tenant gets every verdict, and no 429."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from services.graders.story.sentence_model import MODEL, find_local_weights
from tests.chaos.attacks import ATTACKS
from tests.chaos.history_checker import History
from tests.chaos.two_tenants import TenantCluster, compare, find_harm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("redis-server") is None, reason="redis-server is not installed"
    ),
    pytest.mark.skipif(find_local_weights(MODEL) is None, reason="no weights for stories"),
]


def test_attacks_of_one_tenant_cost_another_no_answer(tmp_path: Path) -> None:
    history = History()
    with TenantCluster(tmp_path, max_depth=800).running() as cluster:
        phases = asyncio.run(compare(cluster, history, {name: (name,) for name in ATTACKS}))
        assert find_harm(cluster, history, phases) == []

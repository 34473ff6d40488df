"""What optimising the reward by word edits reaches, without a judge.

The aim is less than half of an honest answer. No offline measure that is right on 98 of 100 honest
wants reaches it (docs/decisions/0057): the bound here is what does hold.
"""

from __future__ import annotations

import pytest

from services.graders.story.grader import StoryGrader
from tests.attack.story_climber import BOUND, STARTS, climb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", STARTS)
def test_800_edits_guided_by_the_reward_alone_stay_below_the_bound(
    story_grader: StoryGrader, name: str
) -> None:
    found = climb(story_grader, name)
    assert found.start < found.half
    assert found.end < BOUND, found.text

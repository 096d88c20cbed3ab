"""Ids of conversations that people can read, say and type."""

from __future__ import annotations

import random

_FIRST = (
    "amber brave bright calm clear clever cosy crisp eager early fair gentle golden green happy honest jolly keen kind "
    "light lively lucky mellow merry neat noble proud quick quiet ready silver sunny swift tidy warm wise"
)
_SECOND = (
    "badger beaver bison crane crow deer dolphin dove eagle falcon finch fox gecko goose hare hawk heron ibis koala "
    "lark lion lynx marten mole newt otter owl panda pine puffin raven robin seal sparrow stork swan tern wolf wren yak"
)


def new_id() -> str:
    """Two words and four digits, such as `quiet-otter-4711`."""
    chosen = random.SystemRandom()
    return f"{chosen.choice(_FIRST.split())}-{chosen.choice(_SECOND.split())}-{chosen.randrange(10_000):04}"

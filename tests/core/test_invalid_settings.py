"""Every invalid setting is refused with its field, its value and the legal range (L49)."""

from __future__ import annotations

import dataclasses
import math

import pytest

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.route import BreakerConfig
from notebook_agent.core.settings import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.engine.runtime.gate import AdmissionPolicy
from notebook_agent.engine.tools import LoopPolicy
from notebook_agent.errors import ConfigError

SETTINGS = (
    StreamTimeouts, RetryPolicy, RateLimitPolicy, RuntimePolicy, CompactionPolicy, BreakerConfig,
    LoopPolicy, AdmissionPolicy,
)  # fmt: skip
FIELDS = [(cls, f.name, f.default) for cls in SETTINGS for f in dataclasses.fields(cls)]
# fields that None switches off; the others have no word for "none"
OFF = {"max_input_tokens", "summary_model", "duplicate_window_s"}


@pytest.mark.parametrize(
    ("cls", "name", "default"), FIELDS, ids=lambda v: getattr(v, "__name__", v)
)
def test_L49_junk_is_refused_in_words(cls, name, default) -> None:
    junk = [-1, math.nan, math.inf, -math.inf, object(), {}, b"1"]
    if not isinstance(default, bool):
        junk.append(True)
    if not isinstance(default, str) and name != "summary_model":
        junk += ["5", ""]
    if isinstance(default, int) and not isinstance(default, bool):
        junk.append(0.5)
    if name not in OFF:
        junk.append(None)
    for value in junk:
        with pytest.raises(ConfigError) as caught:
            cls(**{name: value})
        error = caught.value
        assert error.field in cls.__slots__
        assert error.legal
        assert error.field in str(error)
        assert error.legal.splitlines()[0] in str(error)


@pytest.mark.parametrize("cls", SETTINGS)
def test_L48_defaults_are_legal_and_frozen(cls) -> None:
    one = cls()
    assert one == cls(**{f.name: getattr(one, f.name) for f in dataclasses.fields(cls)})
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, dataclasses.fields(cls)[0].name, 1)

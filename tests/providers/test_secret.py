"""Keys never show."""

from __future__ import annotations

import copy
import json
import pickle
from base64 import b64encode

import pytest

from notebook_agent.providers.http import Endpoint
from notebook_agent.providers.secret import REPLACEMENT, Secret, scrub

KEY = "sk-proj-AbCdEf0123456789wxyz"


def test_X05_no_form_of_a_secret_shows_it():
    secret = Secret(KEY)
    for text in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r}",
        repr({"k": secret}),
        f"{secret}",
    ):
        assert "AbCd" not in text
        assert "sk-" not in text
    assert secret.reveal() == KEY
    assert secret
    assert not Secret("")
    assert not hasattr(secret, "__dict__")
    for dump in (pickle.dumps, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError) as caught:
            dump(secret)
        assert "AbCd" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"bad key {KEY}", f"bad key {REPLACEMENT}"),
        (f'"{KEY}"', f'"{REPLACEMENT}"'),
        ("Incorrect API key provided: sk-proj-********wxyz. See", f"Incorrect API key provided: {REPLACEMENT} See"),
        ("key sk-pr***", f"key {REPLACEMENT}"),
        ("key ****wxyz is invalid", f"key {REPLACEMENT} is invalid"),
        ("key sk-proj-AbCdEf... is", f"key {REPLACEMENT} is"),
        ("sk-proj-AbCdEf01", REPLACEMENT),
        ("nothing here", "nothing here"),
        ("**bold** and ... dots", "**bold** and ... dots"),
        ("the sk- prefix", "the sk- prefix"),
    ],
)  # fmt: skip
def test_X05_scrub(text, expected):
    got = scrub(text, [Secret(KEY)])
    assert "AbCdEf" not in got
    assert got.rstrip(".") == expected.rstrip(".") or got == expected.replace(". See", " See")


def test_X05_scrub_knows_the_percent_form():
    assert scrub("GET /x?key=a%2Fb%2Bc12345", [Secret("a/b+c12345")]) == f"GET /x?key={REPLACEMENT}"


def test_X05_an_endpoint_knows_its_user_part_as_it_is_sent():
    endpoint = Endpoint.parse(f"https://me:{KEY}@host.example/v1")
    sent = b64encode(f"me:{KEY}".encode()).decode()
    assert (
        scrub(f"bad header: Basic {sent}", endpoint.secrets) == f"bad header: Basic {REPLACEMENT}"
    )
    assert not Endpoint.parse("https://host.example/v1").basic


def test_X05_scrub_with_an_empty_secret_changes_nothing():
    assert scrub("text ***", [Secret("")]) == "text ***"

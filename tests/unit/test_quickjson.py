"""clawq.quickjson against the module that it stands in for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq import quickjson

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(DOCUMENTS)
def test_it_writes_and_reads_what_json_does(document: object) -> None:
    text = json.dumps(document)
    assert quickjson.dumps(document) == text
    assert quickjson.loads(text) == json.loads(text)
    indented = json.dumps(document, indent=1, ensure_ascii=False)
    assert quickjson.loads(f"\n{indented} \t\r") == json.loads(indented)


@pytest.mark.parametrize("text", ["", " ", "[1", "{} x", "nan", "'a'", '"\x01"', "[1,]", '{"a" 1}', "\xa0[]"])
def test_what_is_no_json_is_the_same_error(text: str) -> None:
    with pytest.raises(ValueError) as theirs:
        json.loads(text)
    with pytest.raises(ValueError) as ours:
        quickjson.loads(text)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("value", [{1, 2}, b"x", {"a": [object()]}, {(1, 2): 3}])
def test_what_json_has_no_words_for_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        quickjson.dumps(value)


def test_a_python_without_these_halves_gets_json_itself() -> None:
    code = (
        "import sys; sys.modules['_json'] = None; import json; from clawq import quickjson;"
        "print((quickjson.loads, quickjson.dumps) == (json.loads, json.dumps))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_this_python_has_them() -> None:
    assert quickjson.dumps is not json.dumps

"""What ``json.loads`` and ``json.dumps`` answer, without the module `json`, which brings `re` along: 6 ms.

The work is done by its own halves in C. A Python that has them otherwise, or not at all, gets `json` itself.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Plainly:
    """What ``json.loads`` tells the scanner when it is told nothing."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def loads(text: str) -> "Any":
    """Raises ValueError."""
    try:
        value, end = _scan(text, 0)
        if not text[end:].strip(" \t\n\r"):
            return value
    except StopIteration:
        pass
    import json

    return json.loads(text)  # it knows what to say of this


def dumps(value: object) -> str:
    """In ASCII. Raises TypeError."""
    return "".join(_encode(value, 0))


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not for JSON")


try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scan = make_scanner(_Plainly)  # type: ignore[arg-type]
    _encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    if dumps(loads('{"a":[1,2.5,true,null]}')) != '{"a": [1, 2.5, true, null]}':
        raise ImportError
except Exception:
    import json

    loads, dumps = json.loads, json.dumps  # type: ignore[assignment]

"""Ids and values that get lost, mixed up or changed where somebody quotes, folds or guesses."""

from __future__ import annotations

from typing import Any


def _nested(depth: int) -> Any:
    value: Any = "deep"
    for level in range(depth):
        value = [value] if level % 2 else {"": value}
    return value


NASTY_IDS: tuple[str, ...] = (
    # blanks and control characters
    *(
        " ",
        "  ",
        "a",
        "a ",
        " a",
        "a\t",
        "a\n",
        "a\nb",
        "a\r\nb",
        "\n",
        "\0",
        "a\0",
        "a\0b",
        "\x1f",
        "\x7f",
        "\x1b[31m",
    ),
    # folders and files
    *(".", "..", "/", "a/b", "A/b", "a_b", "a-b", "a/b ", "a//b", "a/./b", "../a", "../../etc/passwd", "/etc/passwd"),
    *("\\", "a\\b", "C:\\a", "~", "con", "NUL", "nul.", "aux.txt", "a.log", "a.", ".a", "a.tmp", "-rf"),
    # quoting
    *("a%2Fb", "a%2fb", "a%252Fb", "%", "%00", "_", "*", "a*", "?", "[a]", "{a}", "a{b}c", "$a", "${a}", "`a`"),
    *("'", '"', "''", "a'b", "'; --", "#", "&", "+", "a+b", "a:b", "a::b", ":", "|", "a|b", ",", "=", "<a>", "@", "!"),
    # what looks like something else
    *("None", "null", "true", "0", "00", "-1", "1e3", "1.0", "NaN", "{}", "[]", "undefined"),
    # case and look-alikes
    *("A", "B", "b", "ß", "ss", "SS", "ẞ", "İ", "i", "I", "ı", "Σ", "σ", "ς", "ﬀ", "ff", "Ａ", "а", "А", "٣", "３"),
    *("é", "e\u0301", "\u00c5", "\u212b", "A\u030a", "a\u200b", "\u200ba", "\ufeffa", "\u202ea", "a\u00a0", "\u3000"),
    *("🎏", "👩\u200d👩\u200d👧", "\U0010ffff", "\uffff", "\ue000", "日本語", "שלום"),
    # length
    *("x" * 255, "x" * 256, "x" * 511, "x" * 511 + "y", "x" * 512, "é" * 512, "🎏" * 512, "../" * 170, "\0" * 512),
)
"""Ids of 1 to 512 characters. Each is another conversation than every other."""

NASTY_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        0.0,
        -0.0,
        1.0,
        0.1,
        1e-7,
        5e-324,
        1.7976931348623157e308,
        1e16,
        123456789.123456789,
    ),
    *(2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**64 + 1, 10**40, -(10**300)),
    *("", " ", " a ", "\0", "a\0b", "\x01\x1f\x7f", "\t\r\n", "a\r\nb", "\x85", "\u2028\u2029", "\ufeff", "\uffff"),
    *(
        "\\",
        "\\\\",
        "\\n",
        "\\u0000",
        "\\u00e9",
        "\\ud83d",
        "\\ud83d\\ude00",
        "\\x00",
        '"',
        "'",
        '\\"',
        "%s",
        "{0}",
        "$1",
    ),
    *("null", "NaN", "Infinity", "1e999", "true", "[]", "{}", '{"a": 1}', "0", "007", "2001-01-01T00:00:00Z"),
    *(
        "é",
        "e\u0301",
        "🎏",
        "👩\u200d👩\u200d👧",
        "\U0010ffff",
        "日本語",
        "שלום",
        "\u202e",
        "<script>",
        "'; DROP TABLE x; --",
    ),
    *("x" * 100_000, "é" * 10_000, "\\" * 1_000, "\0" * 1_000),
    *([], {}, [[]], [{}], {"": ""}, {"": {"": []}}, [None, [None, {"a": None}]], [1, 1.0, True, "1"]),
    *(
        {"\0": 1},
        {"a.b": 1, "a": {"b": 2}},
        {"é": 1, "e\u0301": 2},
        {"a": 1, "A": 2, " a": 3, "a ": 4},
        {"1": 1, "01": 2},
    ),
    *({"$ref": "#", "$type": "a"}, {"__proto__": {"a": 1}, "constructor": 1}, {"__class__": "os.system"}, {"v": 99}),
    *(_nested(200), list(range(5_000)), {str(number): number for number in range(1_000)}),
)
"""Values that strict JSON can hold."""

"""Scalars of YAML, and what kubectl reads them as: ``kubectl label --local -f FILE a=b -o json`` prints it."""

SCALARS = {
    # integers
    "0": 0, "-0": 0, "+1": 1, "017": 15, "0o17": 15, "0O17": 15, "-0o17": -15, "0777": 511, "00": 0, "0x1F": 31,
    "0X1f": 31, "-0x1F": -31, "0b101": 5, "-0b101": -5, "+0b101": 5, "1_000": 1000, "1__0": 10, "1_": 1, "0_17": 15,
    "0x_1F": 31, "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63),
    "9223372036854775808": float(2**63), "18446744073709551616": float(2**64), "0xFFFFFFFFFFFFFFFF": float(2**64),
    "123456789012345678901234567890": 123456789012345678901234567890.0,
    # floats; those without a fraction are integers
    "1e+06": 1000000, "1e6": 1000000, "1E6": 1000000, "1.5e3": 1500, "1.0": 1, "5.": 5, "1.e2": 100, "-0.0": 0,
    "08": 8, "1_e3": 1000, "0.1e1": 1, "1e20": 10**20, "1e21": 1e21, "1e22": 1e22, "1.5": 1.5, "09.5": 9.5, ".5": 0.5,
    "-.5": -0.5, "+.5": 0.5, "1e-7": 1e-7, "1_0.5_0": 10.5, ".5_0": 0.5, "0.30000000000000004": 0.1 + 0.2,
    "4.9e-324": 5e-324,
    # words
    "yes": True, "Yes": True, "YES": True, "on": True, "On": True, "y": True, "true": True, "TRUE": True,
    "no": False, "No": False, "off": False, "OFF": False, "N": False, "false": False, "False": False,
    "null": None, "Null": None, "~": None, "": None,
    # strings
    "yEs": "yEs", "tRue": "tRue", "nULL": "nULL", "12:30": "12:30", "1:30:00": "1:30:00", "-1:30": "-1:30",
    "2001-12-14": "2001-12-14", "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00",
    "2001-12-14 21:59:43": "2001-12-14 21:59:43", "_1": "_1", "0b": "0b", "0b2": "0b2", "0x": "0x", "0xg": "0xg",
    "0o8": "0o8", "0x1p4": "0x1p4", "0x1_0000_0000_0000_0000": "0x1_0000_0000_0000_0000", ".5_": ".5_", "1e": "1e",
    "1e400": "1e400", "1,000": "1,000", "1.2.3": "1.2.3", "+": "+", ".": ".", "=": "=", "inf": "inf", "NaN": "NaN",
    "5m": "5m", "500m": "500m", "1Gi": "1Gi", "12.5%": "12.5%", "١": "١", '"1"': "1", "'yes'": "yes",
    "|-\n    5": "5",
    # tags
    "!!str 1": "1", '!!int "1"': 1, "!!int 0x10": 16, "!!float 1": 1, "!!float 0x10": 16, "!!bool yes": True,
    '!!null ""': None, "!!timestamp 2001-12-14": "2001-12-14", "!!binary aGk=": "hi", "!foo 1": "1",
}  # fmt: skip

REFUSED = (".inf", "-.Inf", ".nan", "!!int 1.5", "!!int abc", "!!float abc", "!!bool 1", "!!null x", "!!binary '#'")
"""kubectl reports an error."""

FIELDS = {
    "{yes: 1, n: 2}": {"true": 1, "false": 2},
    "{1: a, 0x10: b, 1_0: c, -0: d}": {"1": "a", "16": "b", "10": "c", "0": "d"},
    "{2001-12-14: 1, 12:30: 2}": {"2001-12-14": 1, "12:30": 2},
    "{a, ? b : 1, '': 2}": {"a": None, "b": 1, "": 2},
    "{<<: {x: 1, z: 2}, x: 3}": {"x": 3, "z": 2},
    "{x: 3, <<: {x: 1}}": {"x": 1},
    "{<<: [{x: 1}, {x: 2, z: 3}], w: 4}": {"x": 1, "z": 3, "w": 4},
    "{<<: {x: 1}, <<: {z: 1}}": {"x": 1, "z": 1},
    "{'<<': {x: 1}}": {"<<": {"x": 1}},
    "{a: &a {x: 017}, b: *a, c: {<<: *a, z: 1e2}}": {"a": {"x": 15}, "b": {"x": 15}, "c": {"x": 15, "z": 100}},
    "!!set {a, b}": {"a": None, "b": None},
    "!!omap [a: 1]": [{"a": 1}],
    "!foo {a: [1e6, {b: off}]}": {"a": [1000000, {"b": False}]},
}
"""Objects and lists."""

BAD_FIELDS = (
    "{~: 1}", "{? [a] : 1}", "{<<: 5}", "{<<: [5]}", "{<<: null}", "&a {x: *a}", "&a [*a]", "*u", "[a, b", "{a: @x}",
)  # fmt: skip
"""kubectl reports an error."""


def same(one, other):
    """Whether two values of JSON are equal, also in their types: 1 is not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)

"""Generated parts of pages: what stands between two marks is replaced."""


def put(page, name, text):
    """Put a text between the marks of a name into a page; SystemExit if it has none."""
    marks = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, first, rest = page.read_text().partition(marks[0])
    _, last, tail = rest.partition(marks[1])
    if not last:
        raise SystemExit(f"{page} lacks the marks {marks[0]} and {marks[1]}")
    page.write_text(f"{head}{first}\n\n{text}\n\n{last}{tail}")

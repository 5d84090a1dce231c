"""Lines of a file that another process is writing."""


def whole_lines(file):
    """Return those that have an end: of the last one a part may be there."""
    return file.read_text().rpartition("\n")[0].splitlines()

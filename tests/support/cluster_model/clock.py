"""Time as the API server writes it: in whole seconds."""

from datetime import UTC, datetime

BEGIN = datetime(2030, 1, 1, tzinfo=UTC).timestamp()


def written(at):
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

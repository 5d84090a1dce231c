"""Work beside other work on a node: when a guest stays on a busy node or moves, and when memory is short."""

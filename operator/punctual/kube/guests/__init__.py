"""Guest jobs between the API server and the core: what is told of them, and what their control decides."""

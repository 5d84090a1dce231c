"""Steps of one pool: its state, and the stages that plan, start, supervise and end work."""

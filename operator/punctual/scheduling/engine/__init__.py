"""What a pool does in a step: its state, and the stages that plan, start, watch and end work."""

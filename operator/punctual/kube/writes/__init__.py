"""What a leader writes: operations as values, their order, rate and repetition."""

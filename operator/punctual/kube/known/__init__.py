"""What is known of Punctual's kinds: a store for each, with what bodies say, and what a term has read or decided."""

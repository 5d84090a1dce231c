"""One actor per pool: mailbox in, actions out, under a clock."""

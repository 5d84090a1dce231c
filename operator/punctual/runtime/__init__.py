"""Runtime of the pools: one actor per pool takes events from a mailbox, steps the Pool and passes its actions on."""

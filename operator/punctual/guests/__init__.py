"""Guest jobs: divisible jobs without a deadline, in chunks on what the nodes' own work (their hosts) leaves."""

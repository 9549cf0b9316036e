"""Plan, waive, run, summarise: the Session and what it consists of."""

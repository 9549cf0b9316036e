"""The testcases of the core, the patterns of which testcases are made, and the table of all of them."""

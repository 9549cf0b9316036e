"""What changed on this machine, and since when: runs that are remembered, and their series."""

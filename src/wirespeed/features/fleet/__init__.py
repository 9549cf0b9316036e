"""Many saved runs at a time: nodes that differ from their equals."""

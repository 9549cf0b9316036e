"""The command lines, text and JSON of nvbandwidth and sailbandwidth."""

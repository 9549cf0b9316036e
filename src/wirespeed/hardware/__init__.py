"""What a machine is: its devices and links, facts, and what its links allow."""

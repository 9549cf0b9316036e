"""From samples to statistics, and when there are enough of them."""

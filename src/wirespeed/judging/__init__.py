"""Is every value what the hardware can do, and if not, what is slow?"""

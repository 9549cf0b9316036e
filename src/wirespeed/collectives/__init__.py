"""Collectives as data: operations, types of data, and the options that nccl-tests gives them."""

"""The language of `wirespeed transfer`: a line of transfers that start together becomes a Testcase."""

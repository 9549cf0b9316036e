"""Thresholds of changes: what differs from a baseline, between runs, and in a history."""

# Baselines

#: A value fails if it is below its baseline by more than this fraction; an option sets it.
#: Why: Good machines of one model differ by 1 to 5%.
TOLERANCE = 0.05
#: A value fails if it is below its baseline by more than this many of the baseline's deviations.
#: Why: One of 700 values of a normal distribution is.
DEVIATIONS = 3
#: Runs make no baseline if they differ in a value by more than this fraction of the lowest.
#: Why: It is the tolerance: one of them would fail.
AGREEMENT = 0.05

# Comparisons of runs

#: Smaller changes are ignored, however significant; an option sets it.
#: Why: A smaller change is not worth a search for its cause.
LEAST_CHANGE = 0.02
#: This fraction, at most, of the reported changes is expected to be false.
#: Why: If nothing changed, it is the chance that any change is reported, however many values there are.
FALSE_CHANGES = 0.02
#: The smallest standard deviation of an observation, relative to its value.
#: Why: Clocks and counters have no finer resolution.
FINEST = 1e-4
#: The variances of this number of values show how much variances differ.
#: Why: Two differ by chance.
FEWEST_VARIANCES = 3
#: Values are assumed to differ in variance by this many standard errors more than they seem to.
#: Why: Few values may vary alike by chance, which would claim more than is known.
CAUTION = 2.0
#: A value is not the same if a run is slower than all before by more than this fraction.
#: Why: It is three deviations of the values that vary most from run to run, by 7%.
STRAY = 0.2
#: A value is not the same if half of its interval is wider, or the interval has a larger loss.
#: Why: A loss of as much fails against a baseline.
NOISY = 0.05
#: Clocks that differ by less than this fraction are the same.
#: Why: It is that of LEAST_CHANGE.
SAME_CLOCK = 0.02

# Histories

#: A change is looked for in this number of runs or more.
#: Why: STEP was calibrated for 8 to 2,000 runs.
#: Source: benchmarks/history.py
FEWEST_RUNS = 8
#: A level has this number of runs, or more.
#: Why: Fewer cannot be distinguished from disturbed runs.
RUNS_OF_LEVEL = 3
#: A smaller relative change is none.
#: Why: It is not worth a search for its cause.
LEAST_STEP = 0.005
#: Values count as at most this many deviations from their neighbours.
#: Why: A single run, however far off, is no change of level.
CLIPPED = 3.0
#: The smallest relative deviation from run to run that is assumed.
#: Why: Rounds of equal values occur.
LEAST_DEVIATION = 5e-4
#: The statistic of a change exceeds (STEP + STEP_OF_RUNS ln runs) (1 + STEP_OF_FEW / runs).
#: Why: Simulated: below one false alarm in 400 series of 8 to 2,000 runs of independent noise.
#: Source: benchmarks/history.py
STEP = 3.6
#: See STEP.
#: Why: More runs have more places for a change by chance.
#: Source: benchmarks/history.py
STEP_OF_RUNS = 0.17
#: See STEP.
#: Why: The deviation of few runs is uncertain.
#: Source: benchmarks/history.py
STEP_OF_FEW = 10.0
#: Changes at most this many runs apart are one.
#: Why: Chance moves the run in which a change is found.
NEAR_RUNS = 2
#: Changes within this fraction of all runs are one.
#: Why: As for NEAR_RUNS.
NEAR_FRACTION = 0.01
#: More devices and links than this explain no change.
#: Why: The kinds of paths say more.
MOST_CULPRITS = 3
#: From this fraction of the values of a kind of path on, the kind changed, not a device.
#: Why: A device has a smaller part of them.
NEARLY_ALL = 0.8
#: A speed within this fraction of that before a change has returned.
#: Why: It is less than the least change of a comparison.
RETURNED = 0.01

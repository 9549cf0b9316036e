#!/bin/sh
# Slurm epilog: read what the system reports after a job, in about 2 s. Only a defect of the hardware drains
# the node.
#
#   slurm.conf: Epilog=/etc/slurm/wirespeed/epilog.sh
#
# For any other exit code than 0, Slurm drains the node with the reason "Epilog error"; health-check.sh makes
# the line with the reason that of the drained node.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # slurmd passes none
export PATH
epilog="doctor --no-measure" # the command and its options
limit=60                     # maximum time in s; what takes longer is no verdict
# shellcheck disable=SC1091
[ -r /etc/default/wirespeed ] && . /etc/default/wirespeed # may set PATH, epilog and limit

# shellcheck disable=SC2086
line=$(timeout -k 5 "$limit" wirespeed $epilog --for slurm 2>/dev/null)
code=$?
case "$code:$line" in
0:"WIRESPEED PASS: "*) exit 0 ;;
esac
logger -t wirespeed -- "epilog, exit code $code: $line"
# A broken installation also ends with 1, but prints no line.
case "$code:$line" in
1:"WIRESPEED FAIL: "*)
    echo "$line" >&2
    exit 1
    ;;
esac
exit 0

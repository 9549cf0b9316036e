#!/bin/sh
# Slurm prolog: check the GPUs of a job before it starts. Only a failure of the hardware drains the node.
#
#   slurm.conf: Prolog=/etc/slurm/wirespeed/prolog.sh
#               PrologFlags=Alloc
#
# For any other exit code than 0, Slurm drains the node with the reason "Prolog error" and requeues the job. No
# command of Slurm may run here; the line with the reason is in slurmd's log and in the system's log, and
# health-check.sh makes it the reason of the drained node.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # slurmd passes none
export PATH
prolog="check --within 20s --no-save" # the command and its options
limit=60                              # maximum time in s; what takes longer is no verdict
# shellcheck disable=SC1091
[ -r /etc/default/wirespeed ] && . /etc/default/wirespeed # may set PATH, prolog and limit

# shellcheck disable=SC2086
line=$(timeout -k 5 "$limit" wirespeed $prolog --for slurm ${SLURM_JOB_GPUS:+--devices "$SLURM_JOB_GPUS"} 2>/dev/null)
code=$?
case "$code:$line" in
0:"WIRESPEED PASS: "*) exit 0 ;;
esac
logger -t wirespeed -- "prolog, exit code $code: $line"
# A broken installation also ends with 1, but prints no line.
case "$code:$line" in
1:"WIRESPEED FAIL: "*)
    echo "$line" >&2
    exit 1
    ;;
esac
exit 0

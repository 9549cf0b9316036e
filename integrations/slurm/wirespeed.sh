#!/bin/sh
# Slurm prolog, epilog and health check program: only a failure of the hardware drains the node.
#
#   slurm.conf: Prolog=/etc/slurm/wirespeed.sh
#               PrologFlags=Alloc
#               Epilog=/etc/slurm/wirespeed.sh
#               HealthCheckProgram=/etc/slurm/wirespeed.sh
#               HealthCheckInterval=3600
#               HealthCheckNodeState=IDLE,CYCLE
#
# For any other exit code of prolog or epilog than 0, Slurm drains the node with the reason "Prolog error" or
# "Epilog error". No command of Slurm may run there; the line with the reason is in slurmd's log and in the
# system's log, and the next health check makes it the reason of the drained node. slurmd also runs the health
# check when it starts. It never resumes a node, and keeps the reason that an administrator gave.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # slurmd passes none
export PATH
# The commands and their options, and the maximum time in s: what takes longer is no verdict, and slurmd ends a
# health check after 60 s.
prolog="check --within 20s --no-save"
epilog="doctor --no-measure"
health_check="check --within 20s --no-save"
limit=50
# shellcheck disable=SC1091
[ -r /etc/default/wirespeed ] && . /etc/default/wirespeed # may set all of these, and SLURM_CONF

set --
case "${SLURM_SCRIPT_CONTEXT-}:${SLURM_JOB_ID-}" in
prolog_slurmd:*)
    context=prolog command=$prolog
    set -- ${SLURM_JOB_GPUS:+--devices "$SLURM_JOB_GPUS"}
    ;;
epilog_slurmd:*) context=epilog command=$epilog ;;
:) context="health check" command=$health_check ;;
*)
    logger -t wirespeed -- "nothing to check in the context '${SLURM_SCRIPT_CONTEXT-}' of a job"
    exit 0
    ;;
esac

# shellcheck disable=SC2086
line=$(timeout -k 5 "$limit" wirespeed $command --for slurm "$@" 2>/dev/null)
code=$?
case "$code:$line" in
0:"WIRESPEED PASS: "*) exit 0 ;;
esac
logger -t wirespeed -- "$context, exit code $code: $line"
# A broken installation also ends with 1, but prints no line.
case "$code:$line" in
1:"WIRESPEED FAIL: "*) ;;
*) exit 0 ;;
esac
if [ "$context" = "health check" ]; then
    node=${SLURMD_NODENAME:-$(hostname -s)}
    state=$(scontrol show node "$node" --oneliner) || exit 0
    case "$state" in
    *" Reason=Prolog error"* | *" Reason=Epilog error"* | *" Reason=WIRESPEED "*) ;;
    *" Reason="*) exit 0 ;;
    esac
    scontrol update NodeName="$node" State=DRAIN Reason="$line"
fi
echo "$line" >&2 # in slurmd's log
exit 1

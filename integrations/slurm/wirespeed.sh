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
#
# A prolog that is not installed correctly drains nothing, and nobody notices. After installing, on each node, as root:
#
#   /etc/slurm/wirespeed.sh --test
#
# It runs the three commands as slurmd would, drains nothing, and ends with 1 if one gives no verdict.
[ "${1-}" = --test ] && exec /usr/bin/env -i /bin/sh "$0" --tested # slurmd passes no variables
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # slurmd passes none
export PATH
# The commands and their options, and the maximum time in s: what takes longer is no verdict, and slurmd ends a
# health check after 60 s.
prolog="check --within 20s --no-save"
epilog="check --no-measure"
health_check="check --within 20s --no-save"
limit=50
# shellcheck disable=SC1091
[ -r /etc/default/wirespeed ] && . /etc/default/wirespeed # may set all of these, and SLURM_CONF

# Test a command: whether it gives a verdict on this node in time.
answers() {
    context=$1 command=$2
    # shellcheck disable=SC2086
    answer=$(timeout -k 5 "$limit" wirespeed $command --for slurm 2>&1)
    code=$?
    line=$(printf '%s\n' "$answer" | grep '^WIRESPEED ' | head -n 1)
    case "$code:$line" in
    0:"WIRESPEED PASS: "* | 0:"WIRESPEED WARN: "* | 1:"WIRESPEED FAIL: "*) ;;
    0:"WIRESPEED NOT JUDGED: "*) line="$line (it drains nothing while nothing is judged)" ;;
    124:* | 137:*) line="no verdict within $limit s (limit)" code=none ;;
    127:*) line="wirespeed is not in PATH=$PATH" code=none ;;
    *) line="no verdict: $(printf '%s\n' "${line:-$answer}" | tail -n 1)" code=none ;;
    esac
    [ "$code" != none ] || failed="$failed, $context"
    echo "$context: wirespeed $command"
    echo "    $line"
}

if [ "${1-}" = --tested ]; then
    failed=
    [ -x "$0" ] || failed=", $0 (not executable)"
    answers prolog "$prolog"
    answers epilog "$epilog"
    answers "health check" "$health_check"
    command -v logger >/dev/null || failed="$failed, logger (not found: no line in the system's log)"
    if configuration=$(scontrol show config 2>/dev/null); then
        for name in Prolog Epilog HealthCheckProgram; do
            printf '%s\n' "$configuration" | grep -q "^$name\(\[[0-9]*\]\)\{0,1\} *= $0\$" ||
                echo "note: $name in slurm.conf is not $0"
        done
    else
        failed="$failed, scontrol (it does not answer: the health check can drain nothing; see SLURM_CONF)"
    fi
    [ -z "$failed" ] && echo "installed correctly" && exit 0
    echo "NOT installed correctly: ${failed#, }"
    exit 1
fi

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

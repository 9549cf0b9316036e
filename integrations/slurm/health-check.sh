#!/bin/sh
# Slurm health check program: check an idle node, and drain it with the reason if its hardware fails.
#
#   slurm.conf: HealthCheckProgram=/etc/slurm/wirespeed/health-check.sh
#               HealthCheckInterval=3600
#               HealthCheckNodeState=IDLE,CYCLE
#
# slurmd also runs it when it starts, and ends it after 60 s. It never resumes a node, and keeps the reason
# that an administrator gave.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # slurmd passes none
export PATH
health_check="check --within 20s --no-save" # the command and its options
limit=50                                    # maximum time in s; what takes longer is no verdict
# shellcheck disable=SC1091
[ -r /etc/default/wirespeed ] && . /etc/default/wirespeed # may set PATH, health_check, limit, SLURM_CONF

# shellcheck disable=SC2086
line=$(timeout -k 5 "$limit" wirespeed $health_check --for slurm 2>/dev/null)
code=$?
case "$code:$line" in
0:"WIRESPEED PASS: "*) exit 0 ;;
esac
logger -t wirespeed -- "health check, exit code $code: $line"
# A broken installation also ends with 1, but prints no line.
case "$code:$line" in
1:"WIRESPEED FAIL: "*) ;;
*) exit 0 ;;
esac
node=${SLURMD_NODENAME:-$(hostname -s)}
state=$(scontrol show node "$node" --oneliner) || exit 0
case "$state" in
*" Reason=Prolog error"* | *" Reason=Epilog error"* | *" Reason=WIRESPEED "*) ;;
*" Reason="*) exit 0 ;;
esac
scontrol update NodeName="$node" State=DRAIN Reason="$line"
echo "$line" >&2 # in slurmd's log
exit 1

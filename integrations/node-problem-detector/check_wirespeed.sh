#!/bin/sh
# Plugin of node-problem-detector. Arguments: a command of wirespeed that judges, and its options.
# Exit codes: 0 no problem, 1 problem, 2 unknown.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
export PATH
line=$(wirespeed "$@" --for npd 2>/dev/null)
code=$?
if [ -z "$line" ]; then # a broken installation also ends with 1
    echo "wirespeed gave no verdict (exit code $code)"
    exit 2
fi
echo "$line"
exit "$code"

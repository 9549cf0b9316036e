#!/bin/sh
# Check this node, and write the verdict for the textfile collector of Prometheus' node_exporter.
#
#   wirespeed-textfile.sh FILE.prom [OPTION OF CHECK ...]
#
# The file is replaced at once. If there is no answer, the old file stays, and its time shows that it is old.
# The exit code is that of check.
file=$1
shift
new=$(mktemp "$(dirname -- "$file")/.wirespeed.XXXXXX") || exit 5
trap 'rm -f -- "$new"' EXIT
wirespeed check "$@" --format prometheus >"$new"
code=$?
if [ -s "$new" ]; then
    chmod 644 "$new" && mv -- "$new" "$file" || exit 5
fi
exit "$code"

#!/usr/bin/env bash
# beside.sh COMMAND OTHER...: runs OTHER and COMMAND (one word, for bash) at the same time. What COMMAND says is shown when both have ended; fails when one of them does.
# COMMAND is not made nice: under Linux 6.18 nice programs that compute for minutes kept others, and the kernel's own work, from a processor for as long.
set -euo pipefail

said=$(mktemp)
trap 'rm -f "$said"' EXIT
bash -c "$1" >"$said" 2>&1 &
beside=$!
shift
# Whoever ends this ends both.
trap 'kill "$beside" 2>/dev/null || true; exit 130' INT TERM

failed=0
"$@" || failed=$?
wait "$beside" || failed=$?
cat "$said" >&2
exit "$failed"

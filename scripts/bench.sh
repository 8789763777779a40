#!/usr/bin/env bash
# The project's promises of speed, measured against this machine's tmpfs in one run. Arguments
# after the command go to the suite, e.g. --results bench/results to keep the figures as JSON.
# usage: scripts/bench.sh [AZEKURA [OPTION…]]
set -euo pipefail

bin=$(realpath "${1:-target/release/azekura}")
shift || true
exec "$bin" bench suite "$@"

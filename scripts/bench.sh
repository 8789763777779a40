#!/usr/bin/env bash
# Bandwidth and metadata rates of a fresh system on this machine, in memory and with a log.
# Rates of a shared machine compare designs, not machines. usage: scripts/bench.sh [AZEKURA]
set -euo pipefail

bin=$(realpath "${1:-target/release/azekura}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/azekura.XXXXXXXX")
export AZEKURA_SYSTEM="$dir/system"

finish() {
    "$bin" down >/dev/null 2>&1 || true
    rm -rf "$dir"
}
trap finish EXIT

"$bin" up
for durability in memory wal; do
    pool="bench-$durability"
    "$bin" pool create "$pool" --size 2GiB --durability "$durability" --quiet
    "$bin" cont create "$pool" files --quiet
    echo "== durability $durability: bandwidth"
    "$bin" bench io "azk://$pool/files/io"
    echo "== durability $durability: metadata"
    "$bin" bench md "azk://$pool/files/md"
    "$bin" pool destroy "$pool" --force --quiet
done

#!/usr/bin/env bash
# Bandwidth against the number of targets.

experiment=2 scale=0.0625
about="Bandwidth against the number of targets, 1 to 16: 32 processes, 8 GiB in all (times the
scale), transfer 64 KiB, chunk 1 MiB, a file per process."
. "$(dirname "$0")/run.sh"
options "$@"

block=$(scaled $((256 << 20)) $((1 << 20)))
for targets in 1 2 4 8 16; do
	start "$targets" $((block * 32 * 2))
	container c S1 1MiB
	bandwidth 32 $((64 << 10)) "$block" N-N S1 $((1 << 20))
	row targets="$targets" write_mib_s="$write" read_mib_s="$read"
done
save

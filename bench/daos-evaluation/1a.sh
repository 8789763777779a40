#!/usr/bin/env bash
# Bandwidth against transfer size, without sharding.

experiment=1a scale=0.03125
about="Bandwidth against transfer size, 16 KiB to 4 MiB, without sharding: 4 processes, 4 targets,
2 GiB per process (times the scale), chunk 1 MiB, a file per process (N-N) and one file (N-1)."
. "$(dirname "$0")/run.sh"
options "$@"

block=$(scaled $((2 << 30)) $((4 << 20)))
start 4 $((block * 4 * 2))
container c S1 1MiB
for transfer in $((16 << 10)) $((64 << 10)) $((256 << 10)) $((1 << 20)) $((4 << 20)); do
	for layout in N-N N-1; do
		bandwidth 4 "$transfer" "$block" "$layout" S1 $((1 << 20))
		row layout="$layout" class=S1 transfer_bytes="$transfer" write_mib_s="$write" read_mib_s="$read"
	done
done
save

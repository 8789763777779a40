#!/usr/bin/env bash
# Bandwidth against transfer size with two chunk sizes.

experiment=1c scale=0.03125
about="Bandwidth against transfer size, 16 KiB to 4 MiB, with chunks of 256 KiB and of 1 MiB:
4 processes, 4 targets, 2 GiB per process (times the scale), a file per process."
. "$(dirname "$0")/run.sh"
options "$@"

block=$(scaled $((2 << 30)) $((4 << 20)))
start 4 $((block * 4 * 2))
container c S1 1MiB
for chunk in $((256 << 10)) $((1 << 20)); do
	for transfer in $((16 << 10)) $((64 << 10)) $((256 << 10)) $((1 << 20)) $((4 << 20)); do
		bandwidth 4 "$transfer" "$block" N-N S1 "$chunk"
		row chunk_bytes="$chunk" transfer_bytes="$transfer" write_mib_s="$write" read_mib_s="$read"
	done
done
save

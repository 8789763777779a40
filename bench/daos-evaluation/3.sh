#!/usr/bin/env bash
# Metadata rates against the number of processes.

experiment=3 scale=0.02
about="Metadata rates against processes, 2 to 64: 1,000,000 empty files (times the scale) in one
directory over all of 4 targets; create, stat, open and read, remove."
. "$(dirname "$0")/run.sh"
options "$@"

files=$(scaled 1000000 64)
start 4 $((1 << 30))
container c SX 1MiB
for processes in 2 4 8 16 32 64; do
	metadata "$processes" $((files / processes))
	row processes="$processes" create_per_s="$create" stat_per_s="$stat" read_per_s="$open" remove_per_s="$remove"
done
save

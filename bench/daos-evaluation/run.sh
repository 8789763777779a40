#!/usr/bin/env bash
# What the experiments of the DAOS evaluation (Obata, Tatebe) have in common: a fresh system, one
# measurement by IOR or mdtest if they are on PATH and speak DFS, else by `azekura bench`, and the
# figures as JSON. Sourced by the experiments' scripts; see README.md beside it.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
	cat <<TEXT
usage: $(basename "$0") [options]
$about

  --scale X       part of the paper's data (default $scale)
  --full          the paper's data: --scale 1
  --tool TOOL     ior, azekura or auto (default auto: IOR and mdtest from PATH if they speak DFS)
  --repeat N      runs of each point; the mean is kept (default 1, the paper's 3)
  --durability D  of the pool: memory (default, the paper's emulated SCM), relaxed or wal
  --output FILE   JSON goes here (default bench/results/daos-evaluation-$experiment.json)
  --azekura BIN   the program (default target/release/azekura, else the one on PATH)
TEXT
}

# options SCRIPT-OPTIONS...: reads the command line. The script has set $experiment, $about, $scale.
options() {
	tool=auto repeat=1 durability=memory output= azekura=
	while [ $# -gt 0 ]; do
		case $1 in
		--scale) scale=$2; shift ;;
		--full) scale=1 ;;
		--tool) tool=$2; shift ;;
		--repeat) repeat=$2; shift ;;
		--durability) durability=$2; shift ;;
		--output) output=$2; shift ;;
		--azekura) azekura=$2; shift ;;
		-h | --help) usage; exit 0 ;;
		*) echo "$(basename "$0"): unknown option '$1' (see --help)" >&2; exit 2 ;;
		esac
		shift
	done
	: "${output:=$root/bench/results/daos-evaluation-$experiment.json}"
	if [ -z "$azekura" ]; then
		azekura=$root/target/release/azekura
		[ -x "$azekura" ] || azekura=$(command -v azekura) || {
			echo "no azekura: 'make build' makes one" >&2
			exit 1
		}
	fi
	case $tool in
	auto) if speaks_dfs; then tool=ior; else tool=azekura; fi ;;
	ior) speaks_dfs || { echo "ior on PATH is missing, or was built without DFS" >&2; exit 1; } ;;
	azekura) ;;
	*) echo "unknown tool '$tool' (want ior, azekura or auto)" >&2; exit 2 ;;
	esac
	rows=()
	work=$(mktemp -d)
	trap finish EXIT
}

speaks_dfs() {
	local help
	command -v ior >/dev/null && command -v mdtest >/dev/null || return 1
	# It ends with an error after printing its help.
	help=$(ior -h 2>&1 || true)
	[[ $help == *"Module DFS"* ]]
}

finish() {
	"$azekura" down --dir "$work/system" >/dev/null 2>&1 || true
	rm -rf "$work"
}

# scaled BYTES-OR-COUNT MULTIPLE: that times the scale, rounded up to the multiple.
scaled() {
	awk -v n="$1" -v s="$scale" -v m="$2" 'BEGIN { x = int(n * s / m + 0.999999); if (x < 1) x = 1; printf "%d", x * m }'
}

# start TARGETS BYTES: a fresh system with a pool `tank` that holds so much data with ease.
start() {
	"$azekura" down --dir "$work/system" >/dev/null 2>&1 || true
	rm -rf "$work/system"
	"$azekura" up --dir "$work/system" --engines 1 --targets "$1" --quiet >/dev/null
	export AZEKURA_SYSTEM=$work/system
	local mib=$(($2 * 2 / 1048576 + 512 * $1))
	"$azekura" pool create tank --size "${mib}MiB" --durability "$durability" --quiet >/dev/null
}

# container NAME CLASS CHUNK: a POSIX container with that class for files and directories.
container() {
	"$azekura" cont create tank "$1" --file-oclass "$2" --dir-oclass "$2" --chunk-size "$3" \
		--quiet >/dev/null
}

# launch PROCESSES COMMAND...: under mpirun if there is one and it is wanted.
launch() {
	local processes=$1
	shift
	if [ "$processes" = 1 ]; then
		"$@"
		return
	fi
	local flags=()
	if mpirun --version 2>&1 | grep -qi "open mpi\|open-mpi"; then
		flags=(--oversubscribe --allow-run-as-root)
	fi
	mpirun "${flags[@]}" -n "$processes" "$@"
}

# bandwidth PROCESSES TRANSFER BLOCK LAYOUT CLASS CHUNK: sets $write and $read, MiB/s (mean).
# LAYOUT is N-N (a file per process) or N-1 (one file).
bandwidth() {
	local processes=$1 transfer=$2 block=$3 layout=$4 class=$5 chunk=$6 own=()
	[ "$layout" = N-1 ] || own=(-F)
	if [ "$tool" = ior ]; then
		launch "$processes" ior -a DFS --dfs.pool tank --dfs.cont c --dfs.oclass "$class" \
			--dfs.chunk_size "$chunk" -t "$transfer" -b "$block" -i "$repeat" -C -w -r \
			-o /data "${own[@]}" >"$work/out"
		write=$(awk '/^write /{ s += $2; n++ } END { printf "%.1f", s / n }' "$work/out")
		read=$(awk '/^read /{ s += $2; n++ } END { printf "%.1f", s / n }' "$work/out")
	else
		"$azekura" bench io azk://tank/c/data -p "$processes" -t "$transfer" -b "$block" \
			-i "$repeat" -C --oclass "$class" --chunk-size "$chunk" "${own[@]}" \
			--quiet --json >"$work/out"
		write=$(mean_of write bytes_per_s 1048576)
		read=$(mean_of read bytes_per_s 1048576)
	fi
}

# metadata PROCESSES FILES-EACH: sets $create, $stat, $open, $remove, operations/s (mean).
metadata() {
	if [ "$tool" = ior ]; then
		launch "$1" mdtest -a DFS --dfs.pool tank --dfs.cont c -n "$2" -F -i "$repeat" \
			-C -T -E -r -N 1 -d /md >"$work/out"
		create=$(rate_of "File creation")
		stat=$(rate_of "File stat")
		open=$(rate_of "File read")
		remove=$(rate_of "File removal")
	else
		"$azekura" bench md azk://tank/c/md -p "$1" -n "$2" -i "$repeat" --quiet --json \
			>"$work/out"
		create=$(mean_of create ops_per_s 1)
		stat=$(mean_of stat ops_per_s 1)
		open=$(mean_of read ops_per_s 1)
		remove=$(mean_of remove ops_per_s 1)
	fi
}

# mean_of PHASE FIELD UNIT: from the phases that `azekura bench --json` has printed.
mean_of() {
	awk -v phase="\"$1\"" -v field="\"$2\":" -v unit="$3" '
		$1 == "\"summary\":" { exit }
		$1 == "\"phase\":" { on = index($2, phase) == 1 }
		on && $1 == field { sub(",", "", $2); s += $2; n++ }
		END { if (n == 0) exit 1; printf "%.1f", s / n / unit }' "$work/out"
}

# rate_of LABEL: the mean column of mdtest's table.
rate_of() {
	awk -v label="$1" 'index($0, label) { sub(".*" label, ""); printf "%.1f", $3; found = 1; exit }
		END { if (!found) exit 1 }' "$work/out"
}

# row NAME=VALUE...: one point; numbers stay numbers. Also shown on the terminal.
row() {
	local pair name value json=
	for pair in "$@"; do
		name=${pair%%=*} value=${pair#*=}
		[[ $value =~ ^-?[0-9]+(\.[0-9]+)?$ ]] || value="\"$value\""
		json+="${json:+, }\"$name\": $value"
	done
	rows+=("{$json}")
	printf '%s\n' "$*"
}

# save: writes the JSON.
save() {
	mkdir -p "$(dirname "$output")"
	{
		printf '{\n  "experiment": "DAOS evaluation %s",\n  "tool": "%s",\n  "scale": %s,\n  "repeat": %s,\n' \
			"$experiment" "$tool" "$scale" "$repeat"
		printf '  "durability": "%s",\n  "cpu_count": %s,\n  "rows": [\n' "$durability" "$(nproc)"
		local at
		for at in "${!rows[@]}"; do
			printf '    %s%s\n' "${rows[at]}" "$([ "$at" = $((${#rows[@]} - 1)) ] || echo ,)"
		done
		printf '  ]\n}\n'
	} >"$output"
	echo "wrote $output"
}

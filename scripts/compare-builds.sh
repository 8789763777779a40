#!/usr/bin/env bash
# Two builds beside each other: `bench md` and `bench io` in alternating rounds, each side with a fresh system.
# usage: compare-builds.sh BEFORE AFTER [ROUNDS [DIR]]
#   BEFORE, AFTER  azekura programs; ROUNDS default 5; DIR where systems are made, default a temporary directory
# Prints, for each durability and phase, the median rates and the median of the rounds' ratios with their range, and the same of
# the processor's time for an operation, client and engine together, as before / after: above 1 is cheaper. It is steadier than rates.
# Ends with 1 when a ratio is below LEAST (0.97). FILES and BLOCK: files and bytes of each process (20000, 256MiB).
# ITERATIONS: repetitions on each system (1); with more the first, in which memory is touched that never was before, does not count.
# DURABILITIES: those of the pools ("wal memory").
set -euo pipefail
before=$(realpath "${1:?usage: compare-builds.sh BEFORE AFTER [ROUNDS [DIR]]}")
after=$(realpath "${2:?usage: compare-builds.sh BEFORE AFTER [ROUNDS [DIR]]}")
rounds=${3:-5}
at=$(mktemp -d ${4:+-p "$4"})
files=${FILES:-20000} block=${BLOCK:-256MiB} iterations=${ITERATIONS:-1}
export AZEKURA_SYSTEM=
trap '[ -z "$AZEKURA_SYSTEM" ] || "$before" down >"$at/down.log" 2>&1 || true; rm -rf "$at"' EXIT

# Lines of phase, operations per second and processor's time for each, microseconds, from a report.
rates() {
    awk -v what="$1" -v first="$((iterations > 1))" -F'[:,]' '
        /"phase":/ { gsub(/[ "]/, "", $2); phase = $2 }
        /"iteration": [0-9]/ { iteration = $2 + 0 }
        /"ops_per_s": [0-9]/ { rate = $2 + 0 }
        /"client_cpu_us_per_op": [0-9]/ { cpu = $2 + 0 }
        /"server_cpu_us_per_op": [0-9]/ && iteration >= first { print what "." phase, rate, cpu + $2 }'
}

# One side of a round: durability, side, program.
run() {
    export AZEKURA_SYSTEM=$at/system
    "$3" up --engines 1 --targets 2 >"$at/up.log"
    "$3" pool create tank --size 4GiB --durability "$1" >"$at/pool.log"
    "$3" cont create tank home >"$at/cont.log"
    {
        "$3" bench md azk://tank/home/md -n "$files" -i "$iterations" --quiet --json | rates md
        "$3" bench io azk://tank/home/io -b "$block" -i "$iterations" --quiet --json | rates io
    } | sed "s/^/$1 $2 /" >>"$at/rates"
    "$3" down >"$at/down.log"
    rm -rf "$AZEKURA_SYSTEM"
    AZEKURA_SYSTEM=
}

for ((round = 1; round <= rounds; round++)); do
    for durability in ${DURABILITIES:-wal memory}; do
        if ((round % 2)); then
            run "$durability" before "$before"
            run "$durability" after "$after"
        else
            run "$durability" after "$after"
            run "$durability" before "$before"
        fi
    done
    echo "round $round of $rounds" >&2
done

awk -v least="${LEAST:-0.97}" '
    function median(list, size,   i, j, held) {
        for (i = 2; i <= size; i++) {
            held = list[i]
            for (j = i - 1; j > 0 && list[j] > held; j--) list[j + 1] = list[j]
            list[j + 1] = held
        }
        return size % 2 ? list[(size + 1) / 2] : (list[size / 2] + list[size / 2 + 1]) / 2
    }
    {
        name = $1 " " $3
        if (!(name in seen)) { seen[name] = 1; names[++total] = name }
        rate[name, $2, ++count[name, $2]] = $4
        cpu[name, $2, count[name, $2]] = $5
    }
    # Prints one line of either table; a ratio above 1 is better in both.
    function line(name, of, is_rate,   i, rounds, ratio, missed) {
        rounds = count[name, "before"]
        for (i = 1; i <= rounds; i++) {
            b[i] = of[name, "before", i]
            a[i] = of[name, "after", i]
            r[i] = is_rate ? a[i] / b[i] : b[i] / a[i]
        }
        ratio = median(r, rounds)
        missed = ratio < least ? "  MISSED" : ""
        if (missed != "") failed = 1
        printf "%-20s %12.1f %12.1f %8.3f  %.3f to %.3f%s\n", name, median(b, rounds), median(a, rounds), \
            ratio, r[1], r[rounds], missed
    }
    END {
        printf "%-20s %12s %12s %8s  %s\n", "operations/s", "before", "after", "ratio", "range of ratios"
        for (n = 1; n <= total; n++) line(names[n], rate, 1)
        printf "%-20s %12s %12s %8s  %s\n", "CPU us/operation", "before", "after", "ratio", "range of ratios"
        for (n = 1; n <= total; n++) line(names[n], cpu, 0)
        exit failed
    }' "$at/rates"

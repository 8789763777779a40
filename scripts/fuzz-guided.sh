#!/usr/bin/env bash
# Coverage-guided fuzzing of every decoder by libFuzzer, with the stable compiler.
# usage: fuzz-guided.sh [SECONDS [TARGET...]]   seconds for each target, default 20; all targets
# What it found interesting is kept in target/guided/corpus; an input that fails is named, with its path.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
shift || true
cargo=${CARGO:-cargo}
out=$PWD/target/guided
host=$(rustc -vV | sed -n 's/^host: //p')

# Counters at each edge, their addresses, and what is compared: what libFuzzer steers by. With --target
# build scripts and macros stay as they are.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
"$cargo" build --quiet --target "$host" --target-dir "$out" -p fuzz --features guided --bin fuzz-guided
bin=$out/$host/debug/fuzz-guided

targets=("$@")
if ((${#targets[@]} == 0)); then
    mapfile -t targets < <("$bin")
fi
failed=0
for target in "${targets[@]}"; do
    corpus=$out/corpus/$target
    mkdir -p "$corpus"
    export AZEKURA_FUZZ_TARGET=$target
    # libFuzzer misses functions of a sanitizer, which is not there.
    AZEKURA_FUZZ_SEEDS=$corpus "$bin" 2> >(grep -v "^WARNING: Failed to find function" >&2)
    log=$out/$target.log
    if "$bin" -max_total_time="$seconds" -max_len=4096 -timeout=30 -rss_limit_mb=4096 \
        -artifact_prefix="$out/failed-$target-" -print_final_stats=1 "$corpus" >"$log" 2>&1; then
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
            "$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2) edges, no failure"
    else
        failed=1
        echo "$target: FAILED, see $log"
        grep -E 'fuzz-guided: |ERROR|Test unit written' "$log" || true
    fi
done
exit $failed

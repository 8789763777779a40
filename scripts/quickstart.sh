#!/usr/bin/env bash
# A tour: starts a system in a fresh directory, stores a file, reads it back, stops.
# Leaves nothing behind. usage: scripts/quickstart.sh [PATH-OF-AZEKURA]
set -euo pipefail

bin=$(realpath "${1:-target/release/azekura}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/azekura.XXXXXXXX")
export AZEKURA_SYSTEM="$dir/system"
export AZEKURA_LOG="${AZEKURA_LOG:-warn}"

finish() {
    local code=$?
    if ((code != 0)); then
        echo "quickstart: failed; what the engines said:" >&2
        tail -n 40 "$AZEKURA_SYSTEM"/engine*/engine.log >&2 || true
    fi
    "$bin" down >/dev/null 2>&1 || true
    rm -rf "$dir"
    exit "$code"
}
trap finish EXIT

# Shows a command as a user would type it, then runs it.
run() {
    printf '\n$ azekura %s\n' "$*"
    "$bin" "$@"
}

printf 'hello from %s\n' "$(uname -n)" >"$dir/hello.txt"
head -c 8388608 /dev/urandom >"$dir/random.bin"

run up
run pool create tank --size 1GiB
run cont create tank home
run fs cp "$dir/hello.txt" azk://tank/home/hello.txt
run fs cp "$dir/random.bin" azk://tank/home/random.bin
run fs ls -l azk://tank/home/
run fs cat azk://tank/home/hello.txt

# Stop and start: what was acknowledged must be there again.
run down
run up
run fs cp azk://tank/home/random.bin "$dir/back.bin"
cmp "$dir/random.bin" "$dir/back.bin"
run status
run down

cat <<'END'

quickstart: all well; the file read back after a restart is the file written.
To keep a system of your own:
  azekura up && azekura pool create tank --size 4GiB && azekura cont create tank home
END

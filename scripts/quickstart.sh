#!/usr/bin/env bash
# A tour: starts a system of 2 engines with 2 targets each in a fresh directory, copies this
# checkout and the sources it is built from in, reads everything back and compares bytes and
# attributes, kills an engine and starts it again, mounts the container and works in it with
# programs that know nothing of Azekura, measures against this machine's tmpfs, stops. Then three engines and
# a container whose objects have two copies: one engine is killed during a copy and stays dead, nothing is lost. Then
# a fourth engine is added and gets its share, the dead one comes back, and another one is drained.
# Leaves nothing behind. usage: scripts/quickstart.sh [PATH-OF-AZEKURA]
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(realpath "${1:-target/release/azekura}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/azekura.XXXXXXXX")
memory=$(mktemp -d "/dev/shm/azekura.XXXXXXXX" 2>/dev/null) || memory=$(mktemp -d "$dir/memory.XXXX")
export AZEKURA_SYSTEM="$dir/system"
export AZEKURA_LOG="${AZEKURA_LOG:-warn}"
began=$SECONDS

finish() {
    local code=$?
    if ((code != 0)); then
        echo "quickstart: failed; what the engines said:" >&2
        tail -v -n 20 "$AZEKURA_SYSTEM"/engine*/engine.log >&2 || true
    fi
    for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
    "$bin" umount "$dir/mnt" >/dev/null 2>&1 || true
    "$bin" down --wait 10 >/dev/null 2>&1 || true
    rm -rf "$dir" "$memory"
    exit "$code"
}
trap finish EXIT

# Shows a command as a user would type it, then runs it.
run() {
    printf '\n$ azekura %s\n' "$*"
    "$bin" "$@"
}

# Everything a copy must keep, one line per entry: kind, mode, mtime to the nanosecond, size,
# where a link leads, path. The size of a directory is each file system's own business.
attributes() {
    (cd "$1" && find . -printf '%y %m %T@ %s %l %P\n') |
        awk '$1 == "d" { $4 = "-" } $1 == "l" { $2 = "-" } { print }' | LC_ALL=C sort
}

# The tree: this checkout without build output, and sources of its dependencies as cargo keeps
# them.
echo "quickstart: gathering a tree to copy"
tree="$dir/tree"
mkdir "$tree"
tar -cf - --exclude=./target --exclude=./.git/index.lock . | tar -xf - -C "$tree"
registry="${CARGO_HOME:-$HOME/.cargo}/registry/src"
if [[ -d $registry ]]; then
    mkdir "$tree/build-inputs"
    # About 50 MiB of them: enough to see, and soon done.
    kib=0
    for package in "$registry"/*/*/; do
        if ((kib > 50 * 1024)); then break; fi
        kib=$((kib + $(du -sk "$package" | cut -f 1)))
        cp -a "$package" "$tree/build-inputs/"
    done
fi
ln -s ../README.md "$tree/docs/link-to-readme"
ln -s nowhere "$tree/docs/dangling-link"

run up --engines 2 --targets 2
run pool create tank --size 4GiB
run cont create tank home
run fs cp -r "$tree" azk://tank/home/tree
run fs cp -r azk://tank/home/tree "$dir/back"

echo
echo "quickstart: comparing every byte and every attribute"
diff -r --no-dereference "$tree" "$dir/back"
attributes "$tree" >"$dir/tree.txt"
attributes "$dir/back" >"$dir/back.txt"
diff "$dir/tree.txt" "$dir/back.txt"
echo "quickstart: $(wc -l <"$dir/tree.txt") entries came back as they were"
rm -rf "$dir/back"

# An engine dies without warning: what was acknowledged must be there when it is back.
read -r pid _ <"$AZEKURA_SYSTEM/engine1/engine.pid"
printf '\n$ kill -9 %s    # engine 1\n' "$pid"
kill -9 "$pid"
run up
run fs cp -r azk://tank/home/tree/crates "$dir/again"
diff -r --no-dereference "$tree/crates" "$dir/again"
run fs check azk://tank/home
run status

# Shows a command of the system, then runs it.
others() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# Programs that know nothing of Azekura, on a mount.
if [[ ! -e /dev/fuse ]]; then
    why="there is no /dev/fuse here"
elif ((EUID != 0)) && ! command -v fusermount3 >/dev/null; then
    why="only root, or anybody where fusermount3 is installed (package fuse3), can mount"
else
    why=
fi
if [[ -z $why ]]; then
    mkdir "$dir/mnt"
    run mount azk://tank/home "$dir/mnt"
    others git init --quiet "$dir/mnt/repo"
    others cp -a crates docs "$dir/mnt/repo"
    others git -C "$dir/mnt/repo" add .
    git -C "$dir/mnt/repo" -c user.name=Quick -c user.email=quick@start.example \
        commit --quiet -m "A tree"
    others git clone --quiet "$dir/mnt/repo" "$dir/mnt/clone"
    others git -C "$dir/mnt/clone" fsck --no-progress
    others diff -r docs "$dir/mnt/clone/docs"
    mkdir "$dir/mnt/build"
    cat >"$dir/mnt/build/sieve.c" <<'SOURCE'
#include <stdio.h>
#include <string.h>
static char composite[1000000];
int main(void) {
    int count = 0;
    for (long n = 2; n < 1000000; n++) {
        if (composite[n]) continue;
        count++;
        for (long m = n * n; m < 1000000; m += n) composite[m] = 1;
    }
    printf("%d primes below a million\n", count);
    return 0;
}
SOURCE
    printf 'sieve: sieve.c\n\tcc -O2 -o $@ $<\n' >"$dir/mnt/build/Makefile"
    others make --no-print-directory -C "$dir/mnt/build" sieve
    others "$dir/mnt/build/sieve"
    others tar -C "$dir/mnt" -cf "$dir/mnt/crates.tar" tree/crates
    others tar -C "$tree/.." --compare -f "$dir/mnt/crates.tar"
    others ls -l "$dir/mnt"
    run umount "$dir/mnt"
    echo
    echo "quickstart: the same files through library, mount, and mount with the preloaded library"
    "$bin" bench access-paths --rounds 1 --bytes 32MiB --files 1000 --transfers 64KiB,1MiB |
        sed -n '/^pattern/,$p'
else
    echo
    echo "quickstart: the mount is left out: $why"
fi

echo
echo "quickstart: a few seconds of measurements, memory against memory"
run pool create fast --size 2GiB --durability memory --scm-percent 50
run cont create fast bench
io=(bench io --json -F -b 96MiB -t 1MiB)
md=(bench md --json -u -n 50000)
# The first touch of memory is the machine's cost, not the file system's: once for both, unmeasured.
"$bin" "${io[@]}" azk://fast/bench/warm >/dev/null
"$bin" "${io[@]}" "$memory/warm" >/dev/null
"$bin" "${io[@]}" azk://fast/bench/io >"$dir/io-azekura.json"
"$bin" "${io[@]}" "$memory/io" >"$dir/io-tmpfs.json"
"$bin" "${md[@]}" azk://fast/bench/md >"$dir/md-azekura.json"
"$bin" "${md[@]}" "$memory/md" >"$dir/md-tmpfs.json"

# The rates of a report: phase and number, one per line. `rate FILE UNIT`.
rates() {
    awk -v per="$2" '
        /"phase":/ { split($0, part, "\""); phase = part[4] }
        $0 ~ "\"" per "\": [0-9]" { gsub(/[^0-9.e+]/, "", $2); printf "%s %s\n", phase, $2 }
    ' "$1"
}
table() {
    join <(rates "$dir/$1-azekura.json" "$2" | sort) <(rates "$dir/$1-tmpfs.json" "$2" | sort) |
        awk -v unit="$3" -v scale="$4" '{
            printf "  %-8s %12.0f %12.0f  %-6s %5.2f x\n", $1, $2 / scale, $3 / scale, unit,
                ($3 > 0 ? $2 / $3 : 0)
        }'
}
printf '\n  %-8s %12s %12s\n' "" azekura tmpfs
table io bytes_per_s MiB/s 1048576
table md ops_per_s op/s 1

run down

# Files with copies outlive an engine. Engine 0 holds the catalog here, so it is another one that dies.
echo
echo "quickstart: two copies of everything, and an engine that dies while files are copied"
export AZEKURA_SYSTEM="$dir/three"
mkdir "$dir/sources"
cp -a "$tree/crates" "$tree/docs" "$dir/sources"
run up --engines 3 --targets 1
run pool create tank --size 3GiB
run cont create tank home --rd-fac 1
# Somebody else who writes, to places all over the system: how long the longest of these took.
for place in 0 1 2 3 4 5; do "$bin" fs mkdir "azk://tank/home/other$place" >/dev/null; done
writer() {
    local longest=0 begin took place
    while [[ ! -e $dir/enough ]]; do
        for place in 0 1 2 3 4 5; do
            begin=$(date +%s%N)
            "$bin" --quiet fs put README.md "azk://tank/home/other$place/README.md" >/dev/null
            took=$((($(date +%s%N) - begin) / 1000000))
            if ((took > longest)); then longest=$took; fi
        done
        echo "$longest" >"$dir/longest"
    done
}
writer &
writer=$!
printf '\n$ azekura fs cp -r --verify %s azk://tank/home/tree &\n' "$dir/sources"
"$bin" fs cp -r --verify "$dir/sources" azk://tank/home/tree >"$dir/copied.txt" &
copier=$!
until "$bin" fs stat azk://tank/home/tree/crates >/dev/null 2>&1; do sleep 0.05; done
read -r pid _ <"$AZEKURA_SYSTEM/engine2/engine.pid"
printf '\n$ kill -9 %s    # one of three engines, for good\n' "$pid"
kill -9 "$pid"
wait "$copier"
touch "$dir/enough"
wait "$writer"
echo
cat "$dir/copied.txt"
run fs cp -r azk://tank/home/tree "$dir/back"
diff -r --no-dereference "$dir/sources" "$dir/back"
diff <(attributes "$dir/sources") <(attributes "$dir/back")
echo "quickstart: $(attributes "$dir/back" | wc -l) entries came back as they were, without the engine that died"
run fs check azk://tank/home
# Its exit code says that something is missing.
run pool health || [[ $? == 1 ]]
run fs stat azk://tank/home/tree/docs/concepts.md
seconds=$(awk '{ printf "%.1f", $1 / 1000 }' "$dir/longest")
echo
echo "quickstart: writing stood still for $seconds s where that engine was concerned"

# More room is one more engine; one that is to go gives away what it has first.
echo
echo "quickstart: a fourth engine comes, with it the dead one, and gets its share; another one is drained"
run up --engines 4
run pool rebuild status tank --wait
run pool extend tank --rank 3
run pool query tank
run pool balance tank
run pool rebuild status tank --wait
run pool query tank
run pool drain tank --rank 1
run pool rebuild status tank --wait
run pool query tank
rm -rf "$dir/back"
run fs cp -r azk://tank/home/tree "$dir/back"
diff -r --no-dereference "$dir/sources" "$dir/back"
run fs check azk://tank/home
run down
cat <<END

quickstart: all well, in $((SECONDS - began)) s.
To keep a system of your own:
  azekura up && azekura pool create tank --size 4GiB && azekura cont create tank home
END

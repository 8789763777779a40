#!/usr/bin/env bash
# Installs the C library, its other names, headers and pkg-config files below a prefix. The tree may
# be moved afterwards. Called by install.sh.
# usage: scripts/install-c.sh PATH-OF-LIBAZEKURA.SO PREFIX
#        scripts/install-c.sh --remove PREFIX
set -euo pipefail

if (($# != 2)) || [[ -z $2 ]]; then
    echo "usage: scripts/install-c.sh (PATH-OF-LIBAZEKURA.SO | --remove) PREFIX" >&2
    exit 2
fi
capi=$(cd "$(dirname "$0")/.." && pwd)/crates/capi
prefix=$2
object=libazekura.so.0
# Names under which programs written for DAOS link: all of them are the one object.
names=(azekura daos dfs duns gurt daos_common)
# With lib64 the same directory as lib, one set of links is enough.
folders=(lib)
if [[ ! $prefix/lib64 -ef $prefix/lib ]]; then
    folders+=(lib64)
fi
mapfile -t headers < <(cd "$capi/include" && find . -name '*.h' -printf '%P\n' | sort)
version=$(sed -n 's/^#define AZK_VERSION_STRING "\(.*\)"$/\1/p' "$capi/include/azekura.h")
api_version=$(sed -n 's/^#define DAOS_API_VERSION_\(MAJOR\|MINOR\|FIX\) //p' "$capi/include/daos_version.h" |
    paste -sd.)

if [[ $1 == --remove ]]; then
    for folder in "${folders[@]}"; do
        rm -f "$prefix/$folder/$object"
        for name in "${names[@]}"; do
            rm -f "$prefix/$folder/lib$name.so"
        done
    done
    for name in "${names[@]}"; do
        rm -f "$prefix/lib/pkgconfig/$name.pc"
    done
    for header in "${headers[@]}"; do
        rm -f "$prefix/include/$header"
    done
    # Only what is empty now.
    rmdir --ignore-fail-on-non-empty "$prefix/include/gurt" "$prefix/include/daos" "$prefix/lib/pkgconfig" 2>/dev/null || true
    exit 0
fi

install -d "$prefix/lib" "$prefix/lib/pkgconfig"
"$(dirname "$0")/install-stripped.sh" "$1" "$prefix/lib/$object" "$prefix/lib/debug"
for name in "${names[@]}"; do
    ln -sf "$object" "$prefix/lib/lib$name.so"
done
if [[ ${folders[*]} == *lib64* ]]; then
    install -d "$prefix/lib64"
    ln -sf "../lib/$object" "$prefix/lib64/$object"
    for name in "${names[@]}"; do
        ln -sf "$object" "$prefix/lib64/lib$name.so"
    done
fi
for header in "${headers[@]}"; do
    install -D -m 644 "$capi/include/$header" "$prefix/include/$header"
done

# A pkg-config file from the template: name, version, libraries, description.
package() {
    sed -e "s/@NAME@/$1/" -e "s/@VERSION@/$2/" -e "s/@LIBS@/$3/" -e "s/@DESCRIPTION@/$4/" \
        "$capi/pkgconfig/library.pc.in" >"$prefix/lib/pkgconfig/$1.pc"
    chmod 644 "$prefix/lib/pkgconfig/$1.pc"
}
package azekura "$version" "-lazekura" "Scale-out object store and parallel file system"
package daos "$api_version" "-ldaos -lgurt" "Pools, containers, objects, events (Azekura)"
package dfs "$api_version" "-ldfs -ldaos -lgurt" "File system in a container (Azekura)"
package duns "$api_version" "-lduns -ldaos -lgurt" "Paths that lead to containers (Azekura)"
package gurt "$api_version" "-lgurt" "Hash tables, lists, logging (Azekura)"
package daos_common "$api_version" "-ldaos_common -lgurt" "The parts of libdaos that others share (Azekura)"

#!/usr/bin/env bash
# Installs the program, its other names, the C library, the preload libraries, manual pages, shell completions,
# licence and documents below a prefix. Programs and libraries are stripped; with DEBUG=1 what was stripped
# goes to lib/debug, where debuggers look for it. --remove takes all of it away.
# usage: scripts/install.sh PATH-OF-AZEKURA PREFIX
#        scripts/install.sh --remove PREFIX
set -euo pipefail

if (($# != 2)) || [[ -z $2 ]]; then
    echo "usage: scripts/install.sh (PATH-OF-AZEKURA | --remove) PREFIX" >&2
    exit 2
fi
prefix=$2
scripts=$(cd "$(dirname "$0")" && pwd)
bash_dir=$prefix/share/bash-completion/completions
zsh_dir=$prefix/share/zsh/site-functions
fish_dir=$prefix/share/fish/vendor_completions.d
man_dir=$prefix/share/man/man1
doc_dir=$prefix/share/doc/azekura
# Names that users of DAOS type or preload, and what they are links to.
programs=(daos dmg dfuse)
preloads=(libioil.so libpil4dfs.so)

if [[ $1 == --remove ]]; then
    rm -f "$prefix/bin/azekura" "$prefix/lib/libazekura_ioc.so" "$prefix/lib/libazekura_intercept.so"
    for name in "${programs[@]}"; do
        rm -f "$prefix/bin/$name"
    done
    for name in "${preloads[@]}"; do
        rm -f "$prefix/lib/$name"
    done
    for name in azekura libazekura.so.0 libazekura_ioc.so libazekura_intercept.so; do
        rm -f "$prefix/lib/debug/$name.debug"
    done
    rm -f "$bash_dir/azekura" "$zsh_dir/_azekura" "$fish_dir/azekura.fish"
    rm -f "$man_dir"/azekura.1 "$man_dir"/azekura-*.1
    rm -rf "$doc_dir"
    "$scripts/install-c.sh" --remove "$prefix"
    exit 0
fi

bin=$1
built=$(dirname "$bin")
install -d "$prefix/bin" "$prefix/lib"
"$scripts/install-stripped.sh" "$bin" "$prefix/bin/azekura" "$prefix/lib/debug"
for name in "${programs[@]}"; do
    # What is there already may be DAOS itself.
    if [[ -e $prefix/bin/$name && ! -L $prefix/bin/$name ]]; then
        echo "install.sh: $prefix/bin/$name is there already and stays" >&2
    else
        ln -sfn azekura "$prefix/bin/$name"
    fi
done
for name in libazekura_ioc.so libazekura_intercept.so; do
    if [[ -e $built/$name ]]; then
        "$scripts/install-stripped.sh" "$built/$name" "$prefix/lib/$name" "$prefix/lib/debug"
    fi
done
if [[ -e $prefix/lib/libazekura_intercept.so ]]; then
    for name in "${preloads[@]}"; do
        ln -sfn libazekura_intercept.so "$prefix/lib/$name"
    done
fi

install -d "$bash_dir" "$zsh_dir" "$fish_dir" "$man_dir" "$doc_dir"
"$bin" completion bash >"$bash_dir/azekura"
"$bin" completion zsh >"$zsh_dir/_azekura"
"$bin" completion fish >"$fish_dir/azekura.fish"
"$bin" help --man --out "$man_dir"
root=$(dirname "$scripts")
install -m 644 "$root"/{LICENSE,README.md,CHANGELOG.md} "$doc_dir/"
install -m 644 "$root"/docs/*.md "$doc_dir/"
"$scripts/install-c.sh" "$built/libazekura.so" "$prefix"
echo "installed $prefix/bin/azekura and $prefix/lib/libazekura.so.0"

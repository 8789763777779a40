#!/usr/bin/env bash
# Installs the binary, the C library beside it, shell completions, licence and documents below a prefix.
# The Makefile adds the preload libraries; --remove removes them too.
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
doc_dir=$prefix/share/doc/azekura

if [[ $1 == --remove ]]; then
    rm -f "$prefix/bin/azekura" "$prefix/lib/libazekura_ioc.so" "$prefix/lib/libazekura_intercept.so"
    rm -f "$bash_dir/azekura" "$zsh_dir/_azekura" "$fish_dir/azekura.fish"
    rm -rf "$doc_dir"
    "$scripts/install-c.sh" --remove "$prefix"
    exit 0
fi

bin=$1
install -D -m 755 "$bin" "$prefix/bin/azekura"
install -d "$bash_dir" "$zsh_dir" "$fish_dir" "$doc_dir"
"$bin" completion bash >"$bash_dir/azekura"
"$bin" completion zsh >"$zsh_dir/_azekura"
"$bin" completion fish >"$fish_dir/azekura.fish"
root=$(dirname "$scripts")
install -m 644 "$root"/{LICENSE,README.md,CHANGELOG.md} "$doc_dir/"
install -m 644 "$root"/docs/*.md "$doc_dir/"
"$scripts/install-c.sh" "$(dirname "$bin")/libazekura.so" "$prefix"
echo "installed $prefix/bin/azekura and $prefix/lib/libazekura.so.0"

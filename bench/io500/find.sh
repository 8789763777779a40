#!/usr/bin/env bash
# The find phase of IO500 on a container: `external-script` of [find] and [find-easy]. Takes the
# arguments IO500 gives (those of pfind) and ends with the line it reads, MATCHED found/seen.
# AZEKURA_FIND names the container, azk://POOL/CONT; AZEKURA is the program (default: on PATH).
set -euo pipefail

: "${AZEKURA_FIND:?names no container; want azk://POOL/CONT}"
start= options=()
while [ $# -gt 0 ]; do
	case $1 in
	-newer | -name) options+=("-$1" "$2"); shift ;;
	-size)
		[[ $2 =~ ^[0-9]+c$ ]] || { echo "find.sh: want -size BYTESc, got '$2'" >&2; exit 2; }
		options+=(--size "${2%c}")
		shift
		;;
	-*) echo "find.sh: unknown option '$1'" >&2; exit 2 ;;
	*) start=$1 ;;
	esac
	shift
done
counts=$("${AZEKURA:-azekura}" fs find "${AZEKURA_FIND%/}/${start#/}" "${options[@]}" --count)
echo "MATCHED ${counts/ of //}"

#!/bin/sh
# Run the tests under one condition: plain, threads, busy, or the name of a lesser processor.
set -eu
export OMP_NUM_THREADS=1
workers=2
case "$1" in
plain) export BNAF_NATIVE=0 ;;
threads) export OMP_NUM_THREADS=2 workers=1 ;; # as many threads as two workers would have
busy)
    loops=""
    for _ in $(seq "$(nproc)"); do
        (while :; do :; done) &
        loops="$loops $!"
    done
    trap 'kill $loops' EXIT INT TERM
    ;;
*)
    export BNAF_MARCH="$1" BNAF_CACHE="${TMPDIR:-/tmp}/bnaf-$1-$(id -u)"
    "$PYTHON" -m bnaf.block.kernels
    ;;
esac
"$PYTHON" -m pytest -q --numprocesses "$workers" -m "not slow and not browser"

#!/bin/sh
# The Mertens function M(x), the sum of the Moebius function up to x, by a shell script of seq, factor and awk:
# all that a chunk owes to Punctual, without any library. M(10^6) = 212, M(10^7) = 1037.
#
#   mertens.sh            unit k: the sum over 10,000 k + 1 … 10,000 (k + 1)
#   mertens.sh reduce     adds the chunks' sums up
set -eu
message=${PUNCTUAL_TERMINATION_LOG:-/dev/termination-log}
offer=${PUNCTUAL_OFFER:-/etc/punctual/end}

tell() { # NUMBER NAME: replaced whole, so that no reader sees half a number
    echo "$1" >"$PUNCTUAL_DIR/$2.tmp"
    mv "$PUNCTUAL_DIR/$2.tmp" "$PUNCTUAL_DIR/$2"
}

moebius_sum() { # FIRST LAST
    # "12: 2 2 3": no prime twice, then 1 for an even number of primes and -1 for an odd one
    seq "$1" "$2" | factor | awk '
        { m = NF % 2 ? 1 : -1; for (i = 3; i <= NF; i++) if ($i == $(i - 1)) m = 0; sum += m }
        END { if (NR != 10000) exit 1; print sum }' # a pipe hides what ends badly before its last command
}

if [ "${1:-}" = reduce ]; then
    cd "$PUNCTUAL_RESULTS"
    # the names are <begin>-<end>; together they must cover every unit once
    for range in [0-9]*-[0-9]*; do
        echo "$range $(cat "$range")"
    done | sort -n | awk -F '[- ]' -v total="$PUNCTUAL_TOTAL" '
        $1 != at + 0 { print "units from " at + 0 " are missing or there twice" >"/dev/stderr"; bad = 1; exit }
        { at = $2; sum += substr($0, index($0, " ") + 1) }
        END { if (!bad && at != total) { print "units from " at + 0 " are missing" >"/dev/stderr"; bad = 1 }
              if (bad) exit 1
              print sum + 0 }' >"$message"
    cat "$message"
    exit
fi

trap 'exit 143' TERM # the first process of a container would ignore it
unit=$PUNCTUAL_BEGIN
end=$PUNCTUAL_END
answered=
sum=0
tell 0 progress
while [ "$unit" -lt "$end" ]; do
    offered=$(cat "$offer" 2>/dev/null || true)
    if [ -n "$offered" ] && [ "$offered" != "$answered" ]; then
        answered=$offered
        if [ "$offered" -lt "$unit" ]; then offered=$unit; fi # not below what is done
        if [ "$offered" -lt "$end" ]; then end=$offered; fi
        tell "$end" end # from here on nothing at or after it is begun
        continue
    fi
    part=$(moebius_sum $((unit * 10000 + 1)) $((unit * 10000 + 10000)))
    sum=$((sum + part))
    unit=$((unit + 1))
    tell $((unit - PUNCTUAL_BEGIN)) progress
done
echo "$sum" >"$message"
if [ -n "$answered" ]; then sleep 3; fi # the answer is read once a second: let it be seen

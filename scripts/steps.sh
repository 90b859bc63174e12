# Runs steps and prints how long each took. Sourced by the scripts that have steps.
# shellcheck shell=bash

times=()

# step NAME COMMAND...: the script ends with the first step that fails.
step() {
    local name=$1 began=$SECONDS
    shift
    printf '\n==> %s\n' "$name"
    if "$@"; then
        times+=("$(printf '%5d s  %s' $((SECONDS - began)) "$name")")
    else
        times+=("$(printf '%5d s  %s: FAILED' $((SECONDS - began)) "$name")")
        print_times
        return 1
    fi
}

print_times() {
    printf '\n'
    printf '%s\n' "${times[@]}"
}

# missing COMMAND...: succeeds if the command fails.
missing() {
    ! "$@" >/dev/null 2>&1
}

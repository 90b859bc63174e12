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

install_packages() {
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" apt-get install -qq --yes --no-install-recommends "$@"
}

# The client of etcd compiles the messages of etcd with protoc, which needs its include files.
need_protoc() {
    local protoc=${PROTOC:-$(command -v protoc || true)}
    local include=${PROTOC_INCLUDE:-$(dirname "$protoc")/../include}
    if missing "$protoc" --version || [ ! -f "$include/google/protobuf/struct.proto" ]; then
        install_packages protobuf-compiler libprotobuf-dev
    fi
}

# shellcheck shell=bash
#
# Sourced by the scripts that run the tests: whether a secret that a test plants
# ever was an argument of a process, where everybody on the machine can read it.
# What logs, answers, errors and files tell is searched by the tests themselves.

# Only processes of this run count: they carry its report in their environment.
readonly planted_secret='pl4nted-|planted-[0-9a-z]'

# processes_with PATTERN: those of this run with it in their arguments, as PID NAME and where it stands.
processes_with() {
    local found process
    # What stands around it is taken in the same look: the process may be gone at the next.
    while read -r -d '' found; do
        # The search finds itself, and by now a thread of this run may have its number.
        [[ $found == *"($1)"* ]] && continue
        process=${found%%/cmdline:*}
        grep -qszxF "REAL_PARTS_REPORT=$report" "$process/environ" || continue
        printf '%s %s: %s\n' "${process#/proc/}" "$(cat "$process/comm" 2>/dev/null)" "${found#*/cmdline:}"
    done < <(env -u REAL_PARTS_REPORT grep -HsazoE -e ".{0,60}($1).{0,60}" /proc/[0-9]*/cmdline)
}

# watch_arguments FILE: until it is killed, writes down who has a planted secret in its arguments.
watch_arguments() {
    while :; do
        processes_with "$planted_secret" >>"$1"
        sleep 0.2
    done
}

# arguments_are_watched: a process of this run is found by its arguments, or the search is worth nothing.
arguments_are_watched() {
    local control status=0
    # Another word than the tests', so that it does not count.
    REAL_PARTS_REPORT=$report sleep 60 &
    control=$!
    if ! within_seconds 20 control_is_found; then
        echo 'the search for planted secrets in arguments does not find what is there' >&2
        status=1
    fi
    kill "$control"
    wait "$control" 2>/dev/null || true
    return "$status"
}

control_is_found() { [[ $(processes_with '^sleep') == *"$control sleep: sleep"* ]]; }

# no_argument_was_secret FILE
no_argument_was_secret() {
    [[ -s $1 ]] || return 0
    echo 'a planted secret was an argument of these processes:' >&2
    sort -u "$1" >&2
    return 1
}

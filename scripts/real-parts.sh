# shellcheck shell=bash
#
# Sourced by the scripts that run the project against real programs: the
# environment for them, and the report of which were used.
#
# A test suite appends one line for each fact to the file that
# REAL_PARTS_REPORT names, its fields separated by tabs:
#
#   used           PART  VERSION  SUITE         ran on the real part
#   double         PART  SUITE                  ran on an in-process double
#   missing        PART  SUITE  CASE  REASON    did not run for want of the part
#   notapplicable  PART  SUITE  CASE  REASON    this version cannot do the case;
#                                               it ran on the double

# shellcheck source=scripts/planted-secrets.sh
source "$(dirname "${BASH_SOURCE[0]}")/planted-secrets.sh"

# use_real_parts ROOT [TOOL...]: sets up the real programs (all, or those that are
# named), puts them first on PATH, and takes out of the environment what would
# point the tests at someone's own Consul or change what Terraform does.
use_real_parts() {
    local name
    "$1/scripts/setup-tools" "${@:2}"
    export PATH="$1/.tools/bin:$PATH"

    while read -r name; do
        case $name in
        TF_PLUGIN_CACHE_DIR | TF_CLI_CONFIG_FILE) ;;
        CONSUL_* | TF_*) unset "$name" ;;
        *) ;;
        esac
    done < <(compgen -e)
    # Named but missing, it makes every command print a warning.
    [[ -f ${TF_CLI_CONFIG_FILE:-} ]] || unset TF_CLI_CONFIG_FILE
    # Neither Consul nor Terraform asks its maker for a newer version.
    export CHECKPOINT_DISABLE=1
}

# run_reported COMMAND...: runs it with a fresh report, prints the report, and
# returns the command's status. Its temporary files and every process that it
# left behind are gone afterwards, also when a signal ends it. The report stays
# readable as $report until the script ends.
run_reported() {
    local status=0
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/real-parts.XXXXXX") || return
    # A server that refuses to run as root, such as PostgreSQL, runs as another user
    # and has to get through to the folder that its test made for it.
    chmod 711 "$scratch"
    report=$scratch/report
    running= watching=
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    mkdir "$scratch/tmp"
    : >"$report"

    # Started in the background of a script, or by nohup, this one ignores SIGINT,
    # and so would a shell that a test starts to trap it.
    local defaults=()
    if env --default-signal=INT,QUIT true 2>/dev/null; then
        defaults=(env --default-signal=INT,QUIT)
    fi
    # A group of its own, so that all of it can be ended; job control, because
    # a plain background job and its children would ignore SIGINT.
    set -m
    REAL_PARTS_REPORT=$report TMPDIR=$scratch/tmp "${defaults[@]}" "$@" </dev/null &
    running=$!
    set +m
    arguments_are_watched || status=1
    watch_arguments "$scratch/arguments" &
    watching=$!
    wait "$running" || status=$?
    running=
    kill "$watching"
    watching=

    end_leftovers
    print_report
    no_argument_was_secret "$scratch/arguments" || status=1
    return "$status"
}

clean_up() {
    trap '' INT TERM HUP
    [[ -z $watching ]] || kill "$watching" 2>/dev/null || true
    if [[ -n $running ]]; then
        kill -INT -- "-$running" 2>/dev/null || true
        within_seconds 5 group_is_gone || kill -KILL -- "-$running" 2>/dev/null || true
    fi
    end_leftovers || true
    rm -rf "$scratch"
}

group_is_gone() { ! kill -0 -- "-$running" 2>/dev/null; }

# within_seconds N CONDITION: waits for the condition, at most N seconds.
within_seconds() {
    local tries=$(($1 * 10))
    until "$2"; do
        ((tries-- > 0)) || return 1
        sleep 0.1
    done
}

# leftovers: the processes that carry this run's report in their environment.
leftovers() {
    env -u REAL_PARTS_REPORT grep -lszxF "REAL_PARTS_REPORT=$report" /proc/[0-9]*/environ \
        | cut -d / -f 3
}

none_left() { [[ -z $(leftovers) ]]; }

# end_leftovers: ends what outlived the run, and says so: it is a test's fault.
end_leftovers() {
    local pid
    # In a trap, a bare return would give the status from before the trap.
    within_seconds 2 none_left && return 0
    for pid in $(leftovers); do
        printf 'left running, ended now: %s (%s)\n' \
            "$(cat "/proc/$pid/comm" 2>/dev/null || echo gone)" "$pid" >&2
        kill -TERM "$pid" 2>/dev/null || true
    done
    within_seconds 3 none_left && return 0
    for pid in $(leftovers); do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# facts KIND: the lines of that kind, each once, sorted, with all their fields.
facts() {
    sort -u "$report" | awk -F '\t' -v kind="$1" '
        BEGIN { fields["used"] = 4; fields["double"] = 3
                fields["missing"] = 5; fields["notapplicable"] = 5 }
        { sound = ($1 in fields) && NF == fields[$1] }
        kind == "unreadable" ? !sound && NF : sound && $1 == kind'
}

# by_part FIELD...: one row for each part (the fields joined), with its suites,
# which are the last field of a line.
by_part() {
    awk -F '\t' -v last="$1" '
        { part = $2; for (i = 3; i <= last; i++) part = part " " $i
          if (!(part in suites)) order[++n] = part
          suites[part] = suites[part] (part in suites && suites[part] != "" ? ", " : "") $NF }
        END { for (i = 1; i <= n; i++) printf "  %-20s %s\n", order[i], suites[order[i]] }'
}

by_case() { awk -F '\t' '{ printf "  %-20s %s: %s (%s)\n", $2, $3, $4, $5 }'; }

# section TITLE ROWS
section() { printf '%s\n%s\n' "$1" "${2:-  none}"; }

print_report() {
    local rows
    printf '\n'
    section 'Real parts that were used:' "$(facts used | by_part 3)"
    rows=$(facts double | by_part 2)
    [[ -z $rows ]] || section 'On in-process doubles:' "$rows"
    rows=$(facts notapplicable | by_case)
    [[ -z $rows ]] || section 'Beyond this version of the real part, ran on the double:' "$rows"
    section 'Cases that did not run for want of a real part:' "$(facts missing | by_case)"
    rows=$(facts unreadable | sed 's/^/  /')
    [[ -z $rows ]] || section 'Lines of the report that follow no known form:' "$rows"
}

# was_used PART...: whether a suite ran on one of the real parts.
was_used() {
    local part
    for part in "$@"; do
        facts used | awk -F '\t' -v part="$part" '
            $2 == part { found = 1 } END { exit !found }' && return
    done
    return 1
}

# was_used_as PART VERSION: whether a suite ran on this version of a real part,
# or on one that only differs in its last number.
was_used_as() {
    facts used | awk -F '\t' -v part="$1" -v version="$2" '
        $2 == part && index($3 ".", version ".") == 1 { found = 1 } END { exit !found }'
}

# nothing_missing: every case ran, as far as the report can tell.
nothing_missing() {
    local kind sound=0
    for kind in missing unreadable; do
        [[ -z $(facts "$kind") ]] && continue
        printf 'REAL_PARTS=required, and the report has %s lines\n' "$kind" >&2
        sound=1
    done
    return "$sound"
}

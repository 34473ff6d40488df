#!/bin/sh
# Prints an ACL file for Redis 7: one user per role, `default` off. Passwords come from the environment and are only
# printed as hashes. `scaler` is KEDA's, and left out where it has no password.
# Use: GRADUS_REDIS_API=... GRADUS_REDIS_WORKER=... GRADUS_REDIS_METRICS=... [GRADUS_REDIS_SCALER=...] users.sh > users.acl
set -eu
here=$(dirname "$0")
echo "user default off nopass resetkeys resetchannels -@all"
for role in api worker metrics scaler; do
    name=GRADUS_REDIS_$(echo "$role" | tr a-z A-Z)
    if ! password=$(printenv "$name"); then
        [ "$role" != scaler ] || continue
        echo "users.sh: set $name to a password" >&2
        exit 2
    fi
    [ -n "$password" ] || { echo "users.sh: $name is empty" >&2; exit 2; }
    hash=$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)
    echo "user $role on #$hash resetchannels $(cat "$here/$role.acl")"
done
# one user per grader, in place of `worker`: GRADUS_REDIS_WORKER_OCAML=... makes the user worker-ocaml
for name in $(env | sed -n 's/^GRADUS_REDIS_WORKER_\([A-Z0-9_]*\)=.*/\1/p' | sort); do
    grader=$(echo "$name" | tr A-Z a-z)
    hash=$(printenv "GRADUS_REDIS_WORKER_$name" | tr -d '\n' | sha256sum | cut -d ' ' -f 1)
    echo "user worker-$grader on #$hash resetchannels $(sed "s/GRADER/$grader/g" "$here/grader.acl")"
done

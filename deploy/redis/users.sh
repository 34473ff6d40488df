#!/bin/sh
# Prints an ACL file for Redis 7: one user for each FOLDER/redis-USER.password, `default` off. A user `worker-GRADER`
# has the rights of worker.acl for that grader, any other those of USER.acl. Passwords are only printed as hashes.
# `cluster` names the keys of the partitions of a Redis Cluster in place of those of one Redis.
# Use: users.sh FOLDER [cluster] > users.acl
set -eu
cluster=
[ "${2:-}" != cluster ] || cluster='s/~gradus:/~gradus:{*}:/g; s/$/ %R~gradus:{*}:probe +cluster|slots/'
here=$(dirname "$0")
users=
for file in "$1"/redis-*.password; do
    user=$(basename "$file" .password)
    user=${user#redis-}
    rights=$here/${user%%-*}.acl
    [ -s "$file" ] || { echo "users.sh: $file is missing or empty" >&2; exit 2; }
    [ -f "$rights" ] && [ "$user" != worker ] || { echo "users.sh: $file: there is no such role" >&2; exit 2; }
    hash=$(tr -d '\n' <"$file" | sha256sum | cut -d ' ' -f 1)
    users="$users
user $user on #$hash resetchannels $(sed "s/GRADER/${user#worker-}/g; $cluster" "$rights")"
done
echo "user default off nopass resetkeys resetchannels -@all$users"

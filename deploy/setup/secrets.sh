#!/bin/sh
# Makes what docker-compose.yml reads as secrets, once: secrets.sh [FOLDER, default ./secrets]
# Files that are there stay as they are. To change a password remove its file and redis-users.acl, and run this again.
# Containers read them as other users, so the files can be read by all and the folder by its owner alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-secrets}
umask 077
mkdir -p "$folder"
chmod 700 "$folder"

made() { # NAME: 256 random bits in hex, as a file, unless it is there
  [ -s "$folder/$1" ] || head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$folder/$1"
}

for role in api worker metrics scaler; do made "redis-$role.password"; done
for name in grafana-admin.password dashboard.token; do made "$name"; done
if [ ! -s "$folder/redis-users.acl" ]; then
  for role in api worker metrics scaler; do
    export "GRADUS_REDIS_$(echo "$role" | tr a-z A-Z)=$(cat "$folder/redis-$role.password")"
  done
  "$here/../redis/users.sh" >"$folder/partial"
  mv -f "$folder/partial" "$folder/redis-users.acl"
fi
for role in api worker; do
  printf 'redis://%s:%s@redis:6379/0\n' "$role" "$(cat "$folder/redis-$role.password")" >"$folder/partial"
  mv -f "$folder/partial" "$folder/redis-$role.url"
done
chmod 444 "$folder"/*

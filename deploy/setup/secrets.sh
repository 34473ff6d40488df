#!/bin/sh
# Makes what docker-compose.yml reads as secrets: secrets.sh [FOLDER, default ./secrets] [GRADER...]
# Passwords, tokens and secrets that are there stay as they are; the rest is made of them again. To change a password
# remove its file and run this again. Each grader that is named has a user in Redis and a secret that signs its results,
# beside those of the shipped graders.
# Containers read the files as other users, so they can be read by all and the folder by its owner alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-secrets}
[ $# = 0 ] || shift
umask 077
mkdir -p "$folder"
chmod 700 "$folder"

made() { # NAME: 256 random bits in hex, as a file, unless it is there
  [ -s "$folder/$1" ] || head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$folder/$1"
}

put() { # NAME: standard input, as a file
  cat >"$folder/partial"
  mv -f "$folder/partial" "$folder/$1"
}

for name in grafana-admin.password dashboard.token; do made "$name"; done
rm -f "$folder/redis-worker.password" "$folder/redis-worker.url" # of releases in which all workers were one user
for grader in ocaml rust story program preference "$@"; do
  made "redis-worker-$grader.password"
  [ -s "$folder/grader-$grader.secret" ] || {
    printf '%s ' "$grader"
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
    echo
  } | put "grader-$grader.secret"
done
cat "$folder"/grader-*.secret | put graders.secrets
for role in api metrics scaler; do made "redis-$role.password"; done
"$here/../redis/users.sh" "$folder" | put redis-users.acl
for file in "$folder"/redis-api.password "$folder"/redis-worker-*.password; do
  user=$(basename "$file" .password)
  printf 'redis://%s:%s@redis:6379/0\n' "${user#redis-}" "$(cat "$file")" | put "$user.url"
done
chmod 444 "$folder"/*

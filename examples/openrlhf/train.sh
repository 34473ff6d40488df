#!/bin/sh
# OpenRLHF with the route of `gradus serve --adapters openrlhf`; labels hold ids of the service's tasks.
exec python -m openrlhf.cli.train_ppo_ray --data.label_key task \
  --reward.remote_url "${GRADUS_URL:-http://127.0.0.1:8000}/openrlhf/ocaml/get_reward" "$@"

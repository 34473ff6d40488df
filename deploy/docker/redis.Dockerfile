# Redis from Debian's own package, for places that cannot pull redis:7. The broker needs 7.0 or later.
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="gradus-redis" \
      org.opencontainers.image.description="Redis 7 from Debian's package, jobs kept in an append-only file" \
      org.opencontainers.image.licenses="BSD-3-Clause"

# the user and the directory are those of the official image, so that either image fits the same volume
RUN groupadd --system --gid 999 redis \
 && useradd --system --uid 999 --gid 999 --home-dir /data --shell /usr/sbin/nologin redis \
 && apt-get update \
 && apt-get install -y --no-install-recommends redis-server \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o 999 -g 999 -m 0750 /data
USER 999:999
WORKDIR /data
VOLUME /data
EXPOSE 6379
HEALTHCHECK --interval=5s --timeout=3s --retries=5 CMD ["redis-cli", "ping"]
CMD ["redis-server", "--appendonly", "yes", "--protected-mode", "no"]

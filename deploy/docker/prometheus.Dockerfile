# Prometheus from Debian's own package, for places that cannot pull prom/prometheus. Two programs of it: the rest is 300 MB of
# fonts and scripts for pages that Grafana replaces.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/*

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="gradus-prometheus" \
      org.opencontainers.image.description="Prometheus 2 from Debian's package" \
      org.opencontainers.image.licenses="Apache-2.0"
# the user and the directory are those of the official image, so that either image fits the same volume
RUN install -d -o 65534 -g 65534 -m 0750 /prometheus
COPY --from=build /usr/bin/prometheus /usr/bin/promtool /usr/bin/
COPY --from=build /usr/share/doc/prometheus/copyright /usr/share/doc/prometheus/copyright
USER 65534:65534
WORKDIR /prometheus
VOLUME /prometheus
EXPOSE 9090
HEALTHCHECK --interval=15s --timeout=5s --retries=4 \
  CMD ["promtool", "query", "instant", "http://127.0.0.1:9090", "vector(1)"]
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]

# The REST service. Nothing here can run an answer: no compiler, no sandbox, no grader's toolchain.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/gradus/venv
ENV PATH=/opt/gradus/venv/bin:$PATH
# pip's settings may come from the machine that builds: --build-arg PIP_CONFIG_FILE=... with a volume
ARG PIP_CONFIG_FILE
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
# the dependencies are their own layer: a change of our code does not install them again
COPY deploy/docker/locks/api.lock ./
RUN pip install --require-hashes -r api.lock
COPY . .
# a checkout, because a wheel has the SDK alone; compiled here, because the image's user cannot write there
RUN pip install --no-deps -e . && python -m compileall -q .

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-api" \
      org.opencontainers.image.description="Gradus: grades what language models write, over REST" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus
COPY --from=build /opt/gradus /opt/gradus
COPY --from=build /src /src
ENV PATH=/opt/gradus/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=6 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["gradus", "serve", "--host", "0.0.0.0", "--port", "8000", "--redis", "redis://redis:6379/0"]

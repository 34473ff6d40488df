# A vLLM server that takes the weights of each training step, for NVIDIA GPUs. Not built or run by our tests.
# The release is the one that requirements-vllm.lock has, and that was tried with the trainer's TRL.
ARG VLLM_IMAGE=vllm/vllm-openai:v0.32.0

FROM ${VLLM_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-generation" \
      org.opencontainers.image.description="Gradus: vLLM that takes the weights of each training step, on CUDA" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY . /src
# vLLM's own packages hold all that `gradus vllm` imports, and must stay at the releases that they have
RUN python3 -m pip install --no-cache-dir --no-deps -e /src \
 && gradus vllm --help > /dev/null \
 && install -d -o 1000 -g 1000 /runs /models
USER 1000:1000
WORKDIR /tmp
ENV HF_HOME=/models HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
VOLUME /runs
VOLUME /models
EXPOSE 8001
HEALTHCHECK --interval=15s --timeout=5s --start-period=15m --retries=4 \
  CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8001/health', timeout=4)"]
ENTRYPOINT []
CMD ["gradus", "vllm", "Qwen/Qwen2.5-1.5B-Instruct", "--host", "0.0.0.0", "--port", "8001", "--trust-network"]

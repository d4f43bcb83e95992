# Everything in one image: docker build -t confidence . && docker run --rm -v "$PWD/figures:/artifact/figures" confidence
# The demo, or any other command: docker run --rm confidence test
FROM python:3.11-slim-bookworm@sha256:b18992999dbe963a45a8a4da40ac2b1975be1a776d939d098c647482bcad5cba

# LaTeX sets figures/<run>/results.pdf; without it one line says that this file is not made. vLLM compiles its kernels.
RUN apt-get update \
 && apt-get install -y --no-install-recommends git texlive-latex-base texlive-latex-recommended texlive-latex-extra \
    texlive-fonts-recommended poppler-utils gcc g++ \
 && rm -rf /var/lib/apt/lists/*

# The environment, the tests' packages too, depends only on these files, so that an edit elsewhere does not install it again. It lies outside the
# project's folder, over which a development container mounts another.
WORKDIR /artifact
COPY pyproject.toml requirements.lock requirements-test.lock ./
COPY workflow/environment.py workflow/
# With a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130, and docker run --gpus all
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN UV_COMPILE_BYTECODE=1 TORCH_INDEX="$TORCH_INDEX" python3 -c "from pathlib import Path; from workflow import environment; \
root = Path.cwd(); environment.make_once(root, Path('/opt/venv'), environment.LOCKS, environment.read_pins(root, True))"
ENV VIRTUAL_ENV=/opt/venv

COPY . .
ENTRYPOINT ["./run_all.sh"]
